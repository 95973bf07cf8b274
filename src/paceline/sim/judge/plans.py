"""ElasticBSP's planners once more, plainly: what the judge compares the core's plans with."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

Ends = Sequence[Sequence[float]]  # of each worker, when it is expected to finish the iterations to come


def zipline(ends: Ends) -> list[int]:
    """The end of each worker, counted from 1, that gives the least wait; of several such plans the earliest."""
    latest: dict[int, float] = {}
    least, barrier = inf, inf
    for end, worker in sorted((end, worker) for worker, row in enumerate(ends) for end in row):
        latest[worker] = end
        if len(latest) == len(ends) and end - min(latest.values()) < least:
            least, barrier = end - min(latest.values()), end
    return [sum(end <= barrier for end in row) for row in ends]


def grid_scan(ends: Ends) -> list[int]:
    """Around each end of the worker that is done first, the nearest end of every other."""
    return _scan(ends, [min(range(len(ends)), key=lambda worker: ends[worker][0])])


def full_grid_scan(ends: Ends) -> list[int]:
    """The same around each end of every worker."""
    return _scan(ends, range(len(ends)))


def _scan(ends: Ends, designated: Sequence[int]) -> list[int]:
    best: list[int] = []
    least = inf
    for row in designated:
        for own, center in enumerate(ends[row]):
            picked = [_nearest(others, center) for others in ends]
            picked[row] = own
            chosen = [ends[worker][index] for worker, index in enumerate(picked)]
            if max(chosen) - min(chosen) < least:
                least, best = max(chosen) - min(chosen), [index + 1 for index in picked]
    return best


def _nearest(row: Sequence[float], center: float) -> int:
    return min(range(len(row)), key=lambda index: abs(row[index] - center))


PLANNERS = {"zipline": zipline, "grid_scan": grid_scan, "full_grid_scan": full_grid_scan}
