"""The coordinator's barrier: a pull waits until every shard has closed the round, and nothing else changes."""

from __future__ import annotations

import pytest

from paceline.sim import Cluster, Group, Servers, Timeline, simulate_cluster
from paceline.sim.barrier import simulate_barrier
from paceline.sim.cluster import Network

GIGABYTE = 8.0  # gigabits


def starts(timeline: Timeline) -> list[list[float]]:
    return [[round(span.start, 6) for span in lane.spans if span.kind == "computing"] for lane in timeline.lanes]


def uneven(**more: float) -> Cluster:
    """Two servers, of which one has nine tenths of 100 MB."""
    return Cluster(
        workers=(Group(seconds=1.0), Group(seconds=1.2)),
        servers=Servers(count=2, gigabits=GIGABYTE),
        network=Network(**more),
        megabytes=100.0,
        sizes=(9.0, 1.0),
    )


def test_where_messages_take_no_time_it_is_bsp() -> None:
    cluster = Cluster(workers=(Group(seconds=1.0), Group(seconds=3.0)), servers=Servers(count=3))
    assert starts(simulate_barrier(cluster, 10.0)) == starts(simulate_cluster("bsp", cluster, 10.0))


def test_a_pull_starts_when_the_slowest_shard_has_closed_the_round() -> None:
    """The slow worker's line takes 0.09 s for the first shard, and then 0.01 s for the second."""
    cluster = Cluster(
        workers=(Group(seconds=1.0), Group(seconds=2.0, gigabits=GIGABYTE)),
        servers=Servers(count=2, gigabits=2 * GIGABYTE),
        megabytes=100.0,
        sizes=(9.0, 1.0),
    )
    (_, fast), (slow, _) = starts(simulate_barrier(cluster, 3.0))
    assert fast == pytest.approx(slow + 2 + 0.1 + 0.045)
    (_, fast), (slow, _) = starts(simulate_cluster("bsp", cluster, 3.0))
    assert fast == pytest.approx(slow + 2 + 0.09 + 0.045)  # the first shard sends while the second receives


def test_the_barrier_costs_the_way_to_the_coordinator_and_back() -> None:
    latency = 0.01
    barred, free = simulate_barrier(uneven(latency=latency), 5.0), simulate_cluster("bsp", uneven(latency=latency), 5.0)
    late = starts(barred)[0][1] - starts(free)[0][1]
    assert late == pytest.approx(3 * latency, abs=1e-6)  # to the coordinator, to the worker, and the pull itself
    assert barred.rounds <= free.rounds
    assert barred.held_pulls == 0


def test_the_same_run_twice_is_the_same() -> None:
    assert simulate_barrier(uneven(), 7.0) == simulate_barrier(uneven(), 7.0)
