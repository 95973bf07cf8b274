"""Workers that start without the last blocks, on real nodes.

Server 1 is late by a time that passes only when a test says so: its clock stands still for answers until then. With a
rate of 1 and gradients of ones every update takes one number off, so each block shows which version it is.
"""

from __future__ import annotations

from pathlib import Path
from threading import Barrier, Condition, Event, Timer
from time import monotonic
from typing import Any

import pytest
import torch

from paceline.launch.local import LocalCluster
from paceline.nodes import Job, WaitedTooLong, WrongRequest
from paceline.observe.replay import replay
from paceline.observe.trace import read
from paceline.params import Optimizer
from paceline.slowness import parse
from tests.nodes.runs import LONGEST, run

LATE = 1e4  # seconds: for ever, unless the time is let pass
SIZE = 64
LARGE = 200_000  # comes in pieces
ONE = Optimizer("sgd", {"lr": 1.0})


class LateServer:
    """How late its answers are from now on, and a clock that can be put forward."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.options: dict[str, Any] = {"late": self._late, "clock": self._clock}
        self._ahead = 0.0
        self._answering = False
        self._answers = 0
        self._changed = Condition()

    def has_answered(self, times: int) -> None:
        """Wait until it has decided, for so many answers, when they are sent."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._answers >= times, LONGEST)

    def let_time_pass(self) -> None:
        """What is late is due; the server finds out with the next message."""
        self._ahead += 2 * LATE

    def _late(self, up: float) -> float:
        self._answering = True
        return self.seconds

    def _clock(self) -> float:
        """It is asked for the time right after how late an answer is."""
        now = monotonic() + self._ahead
        if self._answering:
            self._answering = False
            with self._changed:
                self._answers += 1
                self._changed.notify()
        return now


def job(sync: str, workers: int = 1, **more: Any) -> Job:
    return Job(workers=workers, servers=2, sync=sync, optimizer=ONE, silence=1e9, **more)


def follow(program: Any, sync: str, workers: int = 1, traces: Path | None = None, **more: Any) -> list[Any]:
    server = LateServer()
    arguments = {"server": server, "sync": sync, **more}
    return run("memory", job(sync, workers), program, arguments, traces=traces, servers={1: server.options})


def step(worker: Any) -> None:
    worker.writable()
    worker.gradients.fill_(1.0)
    worker.step()


def seen(worker: Any) -> list[int]:
    """The versions of both blocks. They must be what their values say, all of them."""
    for place in worker.places:
        part = worker.parameters[place.start : place.stop]
        assert (part == -worker.versions[place.shard]).all(), (worker.versions, part)
    return [worker.versions[0], worker.versions[1]]


def all_have_come(worker: Any) -> None:
    worker.wait(lambda: worker._owed == 0, LONGEST, "the late blocks")


# One worker, whose second server is late.


def without_the_late_one(seat: Any) -> list[Any]:
    server, found = seat.arguments["server"], []
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        server.seconds = LATE
        for _ in range(3):
            step(worker)
            found.append([worker.iteration, *seen(worker)])
        server.has_answered(4)
        server.let_time_pass()
        worker.change(seat.arguments["sync"], 1)  # a message to it
        all_have_come(worker)
        found.append([worker.iteration, *seen(worker)])
        step(worker)
        found.append([worker.iteration, *seen(worker)])
        found.append(worker._replica.aside.nbytes)
        return found


@pytest.mark.parametrize("sync", ["asp(b=0.5)", "bsp(b=0.5)", "ssp(s=1, b=0.5, tau_pull=0.01)", "psp(c=1, b=0.5)"])
def test_a_late_block_keeps_its_value_and_is_taken_at_the_next_start(sync: str) -> None:
    """It has come before that, and changes nothing while the worker computes."""
    (found,) = follow(without_the_late_one, sync)
    *found, memory = found
    assert found == [[1, 1, 0], [2, 2, 0], [3, 3, 0], [3, 3, 0], [4, 4, 3]]
    assert memory <= 2 * 4 * SIZE


def newer_first(seat: Any) -> list[Any]:
    server, found = seat.arguments["server"], []
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        server.seconds = LATE
        for _ in range(2):
            step(worker)
        server.has_answered(3)
        server.seconds = 0.0
        server.let_time_pass()
        for _ in range(3):  # the first of these has its answer before the server looks for what is due
            step(worker)
            all_have_come(worker)
            found.append(seen(worker))
        return found


def test_an_old_block_that_comes_after_a_newer_one_does_not_replace_it() -> None:
    (found,) = follow(newer_first, "asp(b=0.5)")
    assert [version for _, version in found] == sorted(version for _, version in found)
    assert min(found[1]) >= 3, "the third of each had come when it started, and then the first of one"
    assert min(found[2]) >= 4


def changing(seat: Any) -> list[Any]:
    server, found = seat.arguments["server"], []
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        step(worker)
        found.append(worker._replica.aside.nbytes)
        worker.change("asp(b=0.5)")
        step(worker)  # waits for all still, and is told
        found.append(seen(worker))
        server.seconds = LATE
        step(worker)
        found.append(seen(worker))
        server.has_answered(4)
        worker.change("asp")
        server.seconds = 0.0
        step(worker)  # the last with half of them
        all_have_come_but(worker, 1)
        server.let_time_pass()
        for _ in range(2):  # what is late is old by now, and comes in between
            step(worker)
            found.append(seen(worker))
        all_have_come(worker)
        found.append(seen(worker))
        return found


def all_have_come_but(worker: Any, count: int) -> None:
    worker.wait(lambda: worker._owed == count, LONGEST, "all blocks but those that are late")


def test_the_share_can_be_changed_while_it_trains() -> None:
    (found,) = follow(changing, "asp")
    assert found == [0, [2, 2], [3, 2], [5, 5], [6, 6], [6, 6]]


def one_shard_alone(seat: Any) -> list[Any]:
    server = seat.arguments["server"]
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        worker.change("asp(b=0.5)", 0)
        step(worker)
        server.seconds = LATE
        worker.push(torch.ones(SIZE), answer=False)
        handle = worker.pull()
        with pytest.raises(WaitedTooLong) as said:
            handle.wait(0.2)
        server.has_answered(3)
        server.let_time_pass()
        worker.change("asp", 1)
        worker.clock()
        return [str(said.value), handle.done, seen(worker)]


def test_the_shard_that_wants_most_is_heard() -> None:
    (found,) = follow(one_shard_alone, "asp")
    assert found == ["the pull of iteration 1 took more than 0.2 s", True, [2, 2]]


def handles(seat: Any) -> list[Any]:
    server = seat.arguments["server"]
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        server.seconds = LATE
        first_push, first = worker.push(torch.ones(SIZE), answer=False), worker.pull()
        first.wait(LONGEST)
        worker.clock()
        server.has_answered(2)
        server.seconds = 0.0
        server.let_time_pass()
        second_push = worker.push(torch.ones(SIZE))
        second_push.wait(LONGEST)  # the server has seen it, and what was due
        all_have_come(worker)
        late_has_come = first_push.done
        second = worker.pull()
        second.wait(LONGEST)
        worker.clock()
        seen(worker)
        return [first.done, late_has_come, second.done, first_push.outcome, second_push.outcome]


def test_a_block_of_the_last_pull_is_not_taken_for_one_of_this() -> None:
    (found,) = follow(handles, "asp(b=0.5)")
    assert found == [True, True, True, {0: "applied", 1: "applied"}, {0: "applied", 1: "applied"}]


def test_a_timeout_waits_for_the_rest_and_not_for_longer_than_it_takes() -> None:
    """With nobody late it makes no difference, however long it is."""
    (found,) = follow(complete, "asp(b=0.5, tau_pull=1e6)")
    assert found == [[k, k] for k in range(1, 6)]


def complete(seat: Any) -> list[Any]:
    found = []
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        for _ in range(5):
            step(worker)
            found.append(seen(worker))
    return found


def busy_server(seat: Any) -> list[Any]:
    """The server does nothing for a while, so that it cannot take the second gradient."""
    free: Event = seat.arguments["free"]
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        free.clear()
        step(worker)
        Timer(0.3, free.set).start()
        step(worker)
        worker.gradients.fill_(1000.0)
        free.wait(LONGEST)
        all_have_come(worker)
        step(worker)
        return seen(worker)


def test_a_worker_may_write_its_gradient_as_soon_as_it_has_gone_on() -> None:
    """It goes on without an answer, but not before its gradient is taken."""
    free = Event()
    free.set()

    def late(up: float) -> float:
        assert free.wait(LONGEST)
        return 0.0

    (found,) = run("memory", job("asp(b=0.5)"), busy_server, {"free": free}, servers={1: {"late": late}})
    assert min(found) >= 2


# Several workers.


def ahead_and_behind(seat: Any) -> list[int]:
    """Worker 0 goes ahead alone; worker 1 then pushes its first gradient, which is too late."""
    done: Event = seat.arguments["done"]
    iterations = []
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        seat.arguments["all"].wait(LONGEST)  # have their first parameters
        if worker.number == 1:
            assert done.wait(LONGEST)
        for _ in range(5 if worker.number == 0 else 1):
            push = worker.push(torch.ones(SIZE))
            iterations.append(worker.clock())
            push.wait(LONGEST)
        done.set()
        return [*iterations, worker.dropped]


def test_a_worker_that_fell_behind_jumps_ahead() -> None:
    ahead, behind = follow(ahead_and_behind, "psp(c=1, b=0.5)", workers=2, done=Event(), all=Barrier(2))
    assert ahead == [1, 2, 3, 4, 5, 0]
    assert behind[0] >= 5
    assert behind[1] == 2, "one on each shard"


def twice_in_a_round(seat: Any) -> Any:
    """Worker 1 pushes to shard 0 alone, so shard 1 stays in round 0 until worker 0 has pushed there twice."""
    done: Event = seat.arguments["done"]
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        worker.push(torch.ones(SIZE), shards=[0] if worker.number else None)
        worker.clock()
        if worker.number == 1:
            assert done.wait(LONGEST)
            return None
        push = worker.push(torch.ones(SIZE))
        worker.wait(lambda: 1 in push.outcome, LONGEST, "shard 1 to close its round")
        values = worker.snapshot().finish().values
        done.set()
        return [float(values[place.start]) for place in worker.places]


def test_a_shard_that_is_behind_takes_two_gradients_of_a_worker_into_one_round() -> None:
    """That round has two of two gradients: a whole step."""
    values, _ = follow(twice_in_a_round, "psp(c=2, b=0.5)", workers=2, done=Event())
    assert values == [-1.0, -1.0]


def late_for_all(seat: Any) -> list[Any]:
    with seat.worker({"values": (SIZE,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(SIZE))
        seat.arguments["all"].wait(LONGEST)  # have their first parameters
        seat.arguments["server"].seconds = LATE
        while worker.iteration < 10:
            step(worker)
        return [worker.iteration, worker.versions[1]]


@pytest.mark.parametrize("sync", ["ssp(s=1, b=0.5)", "psp(c=1, b=0.5)"])
def test_workers_go_on_without_a_server_that_never_answers_again_and_the_run_replays(sync: str, tmp_path: Path) -> None:
    for iteration, version in follow(late_for_all, sync, workers=2, traces=tmp_path, all=Barrier(2)):
        assert iteration >= 10
        assert version == 0
    for number in 0, 1:
        outcome = replay(read(tmp_path / f"server-{number}.trace"))
        assert outcome.difference is None, str(outcome.difference)
        assert outcome.events > 20


# On the other wires, where answers are late by the time that they say.


def on_a_wire(seat: Any) -> dict[str, int]:
    """Compare every block with its version, before and after what would be the time to compute."""
    wrong = looked = missed = 0
    with seat.worker({"values": (LARGE,)}, in_place=seat.arguments["in_place"]) as worker:
        worker.start(seat.coordinator, torch.zeros(LARGE))
        while min(worker.versions.values()) < seat.arguments["until"]:
            before = dict(worker.versions)
            for _ in range(2):
                for shard, part in enumerate(worker.parts):
                    if before[shard] <= seat.arguments["until"]:  # then one has left, and a gradient counts for more
                        wrong += bool((part != -before[shard] / seat.job.workers).any())
                        looked += 1
                worker.gradients.fill_(1.0)
            missed += len(set(before.values())) > 1
            worker.step()
    return {"wrong": wrong, "looked": looked, "missed": missed}


@pytest.mark.parametrize(("wire", "in_place"), [("shared-memory", False), ("shared-memory", True), ("tcp", False)])
def test_no_block_is_a_mix_or_changes_under_a_worker_that_computes(wire: Any, in_place: bool) -> None:
    slow = [parse("server *: 20% +20ms")]
    arguments = {"until": 60, "in_place": in_place}
    partial = Job(workers=2, servers=2, shards_per_server=2, sync="ssp(s=1, b=0.5)", optimizer=ONE)
    with LocalCluster(partial, f"{__name__}:on_a_wire", arguments, wire=wire, slow=slow) as cluster:
        for ended in cluster.wait(LONGEST).values():
            assert ended.error is None, f"{ended.name}: {ended.error} {ended.log}"
            if ended.name.startswith("worker"):
                assert ended.value["wrong"] == 0
                assert ended.value["looked"] > 60
                assert ended.value["missed"] > 0


# What cannot be.


def test_sums_in_order_need_workers_that_wait_for_everyone_and_everything() -> None:
    for sync in "psp(c=2)", "psp(c=3, b=0.5)", "bsp(b=0.5)":
        with pytest.raises(WrongRequest, match="deterministic sums need"):
            Job(workers=3, sync=sync, deterministic=True)
    Job(workers=3, sync="psp(c=3)", deterministic=True)
