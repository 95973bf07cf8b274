"""The simulator: waits that can be worked out by hand, and what must hold of every run."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from paceline.sim import ClusterError, Hiccup, Lane, Timeline, simulate
from paceline.sync import MODELS, InvariantViolated, Model, Pulled, View
from paceline.sync.models.ssp import SSP

EXAMPLES = [model.examples[0] for model in MODELS.values()] + ["psp(c=2, b=0.6, tau_push=0.2, tau_pull=0.1)"]


def waits(lane: Lane) -> list[tuple[float, float, tuple[int, ...]]]:
    return [(span.start, span.end, span.waiting_for) for span in lane.spans if span.kind == "waiting"]


def lengths(lane: Lane) -> list[float]:
    """How long each finished iteration took."""
    return [span.seconds for span in lane.spans if span.kind == "computing"][: lane.iterations]


# By hand.


def test_bsp_waits_for_the_slowest_every_time() -> None:
    run = simulate("bsp", (1, 1, 3), until=9)
    for lane in run.lanes[:2]:
        assert waits(lane) == [(1, 3, (2,)), (4, 6, (2,)), (7, 9, (2,))]
        assert lane.computing == pytest.approx(1 / 3)
    assert waits(run.lanes[2]) == []
    assert run.lanes[2].computing == 1.0
    assert (run.iterations, run.held_pulls, run.dropped, run.staleness, run.rounds) == (9, 6, 0, 0.0, 3)
    assert run.computing == pytest.approx((1 / 3 + 1 / 3 + 1) / 3)


def test_ssp_runs_ahead_and_then_waits_until_all_have_caught_up() -> None:
    run = simulate("ssp(s=1)", (1, 3), until=12)
    assert waits(run.lanes[0]) == [(2, 6, (1,)), (8, 12, (1,))]


def test_soft_release_ends_the_wait_with_the_next_round() -> None:
    run = simulate("ssp(s=1, release=soft)", (1, 3), until=12)
    assert waits(run.lanes[0]) == [(2, 3, (1,)), (4, 6, (1,)), (7, 9, (1,)), (10, 12, (1,))]


def test_under_asp_nobody_waits_and_staleness_is_the_price() -> None:
    run = simulate("asp", (1, 3), until=3)
    assert [waits(lane) for lane in run.lanes] == [[], []]
    # Worker 1 began at version 0 and two updates came before it; the update of worker 0 at the same time missed that.
    assert run.staleness == (0 + 0 + 2 + 1) / 4
    assert run.computing == 1.0


def test_what_is_dropped_was_computed_in_vain() -> None:
    run = simulate("drop(n_t=2)", (1, 1, 3), until=9)
    assert waits(run.lanes[0]) == []
    assert [span.wasted for span in run.lanes[2].spans] == [1.0, 1.0, 1.0]
    assert [lane.iterations for lane in run.lanes] == [9, 9, 3]
    assert (run.iterations, run.used, run.dropped) == (21, 18, 3)


def test_a_timeout_ends_a_wait_that_names_who_was_missing() -> None:
    run = simulate("psp(c=2, tau_push=0.5)", (1, 1, 4), until=4.5)
    assert waits(run.lanes[0]) == [(1, 1.5, (2,)), (2.5, 3.0, (2,)), (4.0, 4.5, (2,))]


def test_esync_fills_the_wait_with_local_iterations() -> None:
    paces = (1, 1.3, 3.7)
    run = simulate("esync", paces, until=60)
    for lane in run.lanes[:2]:
        # In the first round nobody knows yet how long the slowest takes.
        longest = max(end - start for start, end, _ in waits(lane) if start > 2 * paces[2])
        assert longest < lane.pace
    base = simulate("bsp", paces, until=60)
    assert max(end - start for start, end, _ in waits(base.lanes[0])) == pytest.approx(2.7)
    assert run.lanes[0].iterations > 2 * base.lanes[0].iterations
    assert run.against(base) == run.used / base.used > 1.5


def test_a_given_up_local_iteration_is_wasted_and_not_counted() -> None:
    run = simulate("esync(query=nonblocking)", (1, 3.5), until=40, latency=0.2)
    given_up = [span for span in run.lanes[0].spans if span.wasted]
    assert given_up
    assert run.dropped == 0
    computed = [span for span in run.lanes[0].spans if span.kind == "computing"]
    assert run.lanes[0].iterations == run.lanes[0].used <= len(computed) - len(given_up)


def test_a_hiccup_makes_the_others_wait_for_the_one_that_had_it() -> None:
    run = simulate("bsp", (1, 1), until=6, hiccups=[Hiccup(0, at=2.5, seconds=2)])
    assert waits(run.lanes[1]) == [(3, 5, (0,))]
    assert waits(run.lanes[0]) == []


def test_a_hiccup_while_waiting_delays_only_what_it_overlaps() -> None:
    run = simulate("bsp", (1, 3), until=7, hiccups=[Hiccup(0, at=2, seconds=2)])
    assert [(span.start, span.end) for span in run.lanes[0].spans if span.kind == "computing"][:2] == [(0, 1), (3, 5)]


def test_latency_is_a_wait_for_nobody() -> None:
    run = simulate("asp", (1,), until=5, latency=0.25)
    assert waits(run.lanes[0])[:2] == [(0, 0.5, ()), (1.5, 2.0, ())]
    cut_off = simulate("asp", (1, 9), until=1.75, latency=0.25)
    assert waits(cut_off.lanes[0])[-1] == (1.5, 1.75, ())


def test_a_share_of_the_blocks_is_enough_where_a_server_is_slow() -> None:
    def run(b: float) -> Timeline:
        return simulate(f"psp(c=2, b={b}, tau_pull=0.25)", (1, 1), shards=3, latency=(0, 0, 2), until=21)

    whole, part = run(1.0), run(0.6)
    # The slow server's answer takes 4 seconds, before the first iteration too, and 0.25 is all that is spent on it.
    assert [lane.iterations for lane in whole.lanes] == [4, 4]
    assert [lane.iterations for lane in part.lanes] == [16, 16]


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("query", ["blocking", "nonblocking"])
def test_esync_with_one_local_step_is_bsp(query: str, shards: int) -> None:
    """With the State Server and the workers' local steps in it, to the last span."""
    paces = (1, 1.3, 0.4, 2.9)
    bsp = simulate("bsp", paces, until=40, jitter=0.3, seed=5, shards=shards)
    esync = simulate(f"esync(max_steps=1, query={query})", paces, until=40, jitter=0.3, seed=5, shards=shards)
    assert esync.lanes == bsp.lanes
    assert (esync.held_pulls, esync.rounds) == (bsp.held_pulls, bsp.rounds)


# Of every run.


@pytest.mark.parametrize("latency", [0.0, 0.07])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("model", EXAMPLES)
def test_every_model_makes_progress_and_spans_tile_the_time(model: str, shards: int, latency: float) -> None:
    run = simulate(model, (1, 1.3, 2.9), shards=shards, until=40, seed=3, latency=latency, jitter=0.2)
    assert run.rounds > 0
    for lane in run.lanes:
        assert lane.iterations >= 40 / 2.9 / 2
        assert lane.used <= lane.iterations
        edges = [0.0, *(span.end for span in lane.spans)]
        assert [span.start for span in lane.spans] == edges[:-1]
        assert edges == sorted(set(edges))
        assert edges[-1] == 40
        assert all(lane.worker not in span.waiting_for for span in lane.spans)
        assert all(not span.waiting_for for span in lane.spans if span.kind == "computing")
    if latency == 0:
        assert all(waiting_for for lane in run.lanes for _, _, waiting_for in waits(lane))


@pytest.mark.parametrize("model", EXAMPLES)
def test_a_seed_gives_one_result(model: str) -> None:
    def run(seed: int) -> Timeline:
        return simulate(model, (1, 1.3, 2.9), shards=2, until=30, seed=seed, jitter=0.2)

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_without_jitter_only_coins_depend_on_the_seed() -> None:
    assert simulate("bsp", (1, 2), seed=1) == simulate("bsp", (1, 2), seed=2)
    coins = "pssp(s=1, c=0.5)"
    assert simulate(coins, (1, 2), until=60, seed=1) != simulate(coins, (1, 2), until=60, seed=2)


def test_the_cluster_is_the_same_under_every_model() -> None:
    bsp, asp = (simulate(model, (1, 1.3, 2.9), until=40, seed=5, jitter=0.3) for model in ("bsp", "asp"))
    for one, other in zip(bsp.lanes, asp.lanes, strict=True):
        both = min(one.iterations, other.iterations)
        assert lengths(one)[:both] == pytest.approx(lengths(other)[:both])
        assert all(0.7 * one.pace <= length <= 1.3 * one.pace for length in lengths(other))
        assert len(set(lengths(other))) > 1


def test_more_shards_change_no_decision() -> None:
    one, three = (simulate("pssp(s=2, c=0.5)", (1, 1.3, 2.9), shards=shards, until=40) for shards in (1, 3))
    assert one.lanes == three.lanes
    assert three.held_pulls == 3 * one.held_pulls


# What it refuses.


class Boundless(SSP, frozen=True):
    """Says that it is ssp, but lets everyone go."""

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return True


class Stuck(Model, frozen=True):
    """Holds every pull for a round that never comes."""

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < 0

    def filed(self, view: View, pull: Pulled) -> int:
        return pull.iteration + 1_000_000


def test_invariants_are_on() -> None:
    with pytest.raises(InvariantViolated, match="ssp_bounds_the_gap"):
        simulate(Boundless(s=1), (1, 3))


def test_a_deadlock_is_told() -> None:
    with pytest.raises(InvariantViolated, match="nothing_waits_in_vain"):
        simulate(Stuck(), (1, 3))


@pytest.mark.parametrize(
    ("paces", "settings", "complaint"),
    [
        ((), {}, "at least one worker"),
        ((1, 0), {}, "worker 1 takes 0 seconds"),
        ((1, inf), {}, "worker 1 takes inf seconds"),
        ((1,), {"until": 0}, "the end is at 0 seconds"),
        ((1,), {"shards": 0}, "0 shards"),
        ((1,), {"shards": 2, "latency": (0.1,)}, "2 shards with a latency"),
        ((1,), {"latency": -1}, "latency of -1"),
        ((1,), {"jitter": 1}, "jitter is 1"),
        ((1,), {"hiccups": [Hiccup(1, 0, 1)]}, "is of no worker"),
    ],
)
def test_what_cannot_be_is_refused(paces: tuple[float, ...], settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ClusterError, match=complaint):
        simulate("bsp", paces, **settings)
