"""How fast gradients and parameters move, beside memcpy and beside other systems.

A cell is a number of workers and a size. Within a cell every system is up and they take turns, one batch of rounds
each, so that what the machine does in between hits all of them alike; of its batches each system gets the median. GB/s
counts what workers push and pull, `2 · workers · bytes / seconds of a round`. The round trip is a round of 4 KB. Each
process has one torch thread: with two, both sides of a pair would wait for each other's threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median

from msgspec import Struct

from paceline.bench.rivals import MEMCPY, Rival
from paceline.bench.turns import take_turns

SMALL = 0.004096  # megabytes of the round trip


class WireRow(Struct):
    """One system in one cell. A system without servers has 0 of them; `of_memcpy` is memcpy's of the same cell."""

    system: str
    transport: str
    workers: int
    servers: int
    megabytes: float
    gb_per_s: float
    of_memcpy: float
    rtt_us: float


def measure(
    systems: Sequence[Rival], workers: Sequence[int], megabytes: Sequence[float], servers: int = 1, repeats: int = 5
) -> Iterator[list[WireRow]]:
    """For each cell, the rows of memcpy and of those systems that can be measured in it."""
    for count in workers:
        able: list[Rival] = [MEMCPY, *(system for system in systems if not system.unfit(count, servers))]
        trips = measure_systems(able, count, servers, SMALL, repeats)
        for size in megabytes:
            seconds = measure_systems(able, count, servers, size, repeats)
            yield [
                WireRow(
                    system=system.name,
                    transport=system.transport,
                    workers=count,
                    servers=0 if system.serverless else servers,
                    megabytes=size,
                    gb_per_s=2 * count * size / 1e3 / taken,
                    of_memcpy=seconds[0] / taken,
                    rtt_us=trip * 1e6,
                )
                for system, taken, trip in zip(able, seconds, trips, strict=True)
            ]


def measure_systems(
    systems: Sequence[Rival], workers: int, servers: int, megabytes: float, repeats: int
) -> list[float]:
    """Seconds of a round of each system, as the median of `repeats` batches."""
    with ExitStack() as stack:
        groups = [stack.enter_context(system.start(workers, servers, megabytes)) for system in systems]
        return [median(seconds) for seconds in take_turns(groups, repeats)]
