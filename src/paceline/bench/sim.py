"""How fast the simulator is, how much memory it takes, and how both grow with the workers: under `ssp`, on one core."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from paceline.bench.clock import Run, take_turns
from paceline.sim import Cluster, Group
from paceline.sim.timeline import Simulation
from paceline.sync import parse

SIZES = (10, 100, 1000, 10_000)
MODEL = "ssp(s=3)"
SPREAD = 0.3  # of the workers' paces
FEWEST = 3.0  # iterations of each worker


class SimRow(Struct, frozen=True):
    """One size. An event is what happens at one time: a message, or the end of an iteration."""

    workers: int
    iterations: int
    seconds: float
    microseconds_per_iteration: float
    events_per_second: float
    growth: float  # over the cheapest size
    kilobytes_per_worker: float  # at most, in a run of a few iterations of each


def measure(iterations: int, repeats: int, sizes: Sequence[int] = SIZES) -> list[SimRow]:
    """Roughly so many iterations in all at each size; the sizes take turns."""
    done: dict[int, Simulation] = {}

    def prepare(workers: int) -> Run:
        simulation = done[workers] = _simulation(workers)
        return partial(simulation.run, max(iterations / workers, FEWEST))

    seconds = take_turns({str(workers): partial(prepare, workers) for workers in sizes}, repeats)
    counts = {workers: sum(node.record.iterations for node in done[workers].nodes) for workers in sizes}
    costs = {workers: seconds[str(workers)] / counts[workers] for workers in sizes}
    return [
        SimRow(
            workers=workers,
            iterations=counts[workers],
            seconds=seconds[str(workers)],
            microseconds_per_iteration=1e6 * costs[workers],
            events_per_second=done[workers].events / seconds[str(workers)],
            growth=costs[workers] / min(costs.values()),
            kilobytes_per_worker=_memory(workers) / workers / 1e3,
        )
        for workers in sizes
    ]


def _simulation(workers: int) -> Simulation:
    cluster = Cluster(workers=(Group(seconds=1.0, count=workers, jitter=SPREAD),))
    return Simulation(parse(MODEL), cluster, watched=False)


def _memory(workers: int) -> int:
    """Bytes, at most, that a simulation of some iterations of each worker takes."""
    tracemalloc.start()
    try:
        _simulation(workers).run(FEWEST)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
