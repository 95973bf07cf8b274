"""Why ElasticBSP has one plan for all shards: with a plan for each, they deadlock, and the tests find it."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import Grant, Hold, InvariantViolated, Pulled, Pushed, SetModel, Shard, parse
from paceline.sync.invariants import Watch
from tests.cluster import Cluster, watched
from tests.effort import cases


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 6),
    shards=st.integers(1, 8),
    horizon=st.integers(1, 20),
    planner=st.sampled_from(["zipline", "grid_scan", "full_grid_scan"]),
)
@settings(max_examples=cases(200), deadline=None)
def test_elastic_bsp_on_all_shards_never_deadlocks(
    seed: int, workers: int, shards: int, horizon: int, planner: str
) -> None:
    model = parse(f"elastic_bsp(R={horizon}, planner={planner})")
    Cluster(watched([model] * shards, workers), workers, 12, Random(seed).randrange).run()


@given(seed=st.integers(0, 2**32), shards=st.integers(2, 5))
@settings(max_examples=cases(300), deadline=None)
def test_setting_the_model_again_and_again_never_deadlocks(seed: int, shards: int) -> None:
    """Each shard hears of it in its own time, so some still follow an old plan while others begin a new one."""
    random = Random(seed)
    running = Cluster(watched(["elastic_bsp(R=2)"] * shards, 4), 4, 12, random.randrange)
    for _ in range(5):
        for _ in range(random.randrange(40)):
            running.step()
        running.set_model(random.choice(["elastic_bsp(R=1)", "elastic_bsp(R=3)", "bsp", "drop(n_t=2)"]))
    running.run()


def test_a_plan_for_each_shard_deadlocks() -> None:
    """The planted mistake: every shard believes that it is the first one, and plans."""
    found = 0
    for seed in range(20):
        shards = [Watch(Shard("elastic_bsp(R=8)", 4, index=0)) for _ in range(3)]
        try:
            Cluster(shards, 4, 30, Random(seed).randrange).run()
        except InvariantViolated as violation:
            assert "nothing_waits_in_vain" in str(violation)
            found += 1
    assert found > 0


def test_stops_of_an_earlier_time_under_the_model_are_told_apart_from_new_ones() -> None:
    """Shards that follow take a superstep that they know of for done, so a number must never come again."""
    shard = Shard("elastic_bsp(R=2)", 2)
    numbers: list[int] = []
    for iteration in range(9):
        if iteration in (4, 6):
            shard.handle(SetModel("bsp"), 0.0)
        if iteration in (4, 6, 7):
            shard.handle(SetModel("elastic_bsp(R=1)"), 0.0)
            era = max(numbers)
        for worker in (0, 1):
            shard.handle(Pushed(worker, iteration), float(iteration))
        for worker in (0, 1):
            for command in shard.handle(Pulled(worker, iteration), float(iteration)):
                if isinstance(command, Grant) and command.stop:
                    assert iteration < 4 or command.stop.superstep > era
                    numbers.append(command.stop.superstep)
    assert len(numbers) > 9


def test_every_worker_stops_together_with_the_others() -> None:
    """Two fast workers and a slow one: the slow one does one iteration while the fast ones do several."""
    shard = Shard("elastic_bsp(R=10, predict=last)", 3)
    paces = {0: 1.0, 1: 1.0, 2: 4.0}
    ends = simulate(shard, paces, until=60.0)
    barriers = [sorted(times) for times in zip(*ends.values(), strict=False)]
    later = barriers[2:]
    assert later
    assert all(times[-1] - times[0] < min(paces.values()) for times in later)


def simulate(shard: Shard, paces: dict[int, float], until: float) -> dict[int, list[float]]:
    """Run workers of constant pace against one shard; when each came to each of its stops."""
    ends: dict[int, list[float]] = {worker: [] for worker in paces}
    heap = [(pace, worker, 0) for worker, pace in paces.items()]
    stops = dict.fromkeys(paces, 0)
    for worker in paces:
        shard.handle(Pulled(worker, -1), 0.0)
    while heap:
        now, worker, iteration = heappop(heap)
        if now > until:
            break
        if iteration == stops[worker]:
            ends[worker].append(now)
        commands = shard.handle(Pushed(worker, iteration), now) + shard.handle(Pulled(worker, iteration), now)
        for command in commands:
            if isinstance(command, Grant):
                assert command.stop is not None
                stops[command.worker] = command.stop.iteration
                heappush(heap, (now + paces[command.worker], command.worker, command.next))
            elif isinstance(command, Hold):
                assert command.iteration == stops[command.worker]
    return ends


@pytest.mark.parametrize("how", ["last", "robust"])
def test_one_hiccup_costs_waiting_but_never_safety(how: str) -> None:
    """A wrong prediction: the worker that was fast is suddenly slow, and the others wait for it at the barrier."""
    shard = Watch(Shard(f"elastic_bsp(R=6, predict={how})", 3))
    random = Random(5)
    Cluster([shard], 3, 60, lambda n: int(random.random() ** 2 * n)).run()
    assert shard.shard.counters.held_pulls > 0
