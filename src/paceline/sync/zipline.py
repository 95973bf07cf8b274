"""Where to put the next barrier of ElasticBSP: three planners, and the prediction that they plan on.

`ends[p, j]` is when worker `p` is expected to finish the `j+1`-th iteration from now. A plan picks one end for each
worker; its wait is the time from the first of them to the last, and the barrier is at the last.

- `zipline` finds the least wait, and the earliest barrier with it. The paper's algorithm 2 moves a set of ends along
  the time line and costs O(R n²). This one sorts all ends. For every end `t` as the barrier it needs the earliest of
  the workers' latest ends up to `t`: the first end in sorted order whose worker has no other end up to `t`. A running
  maximum over "where is the next end of the same worker" gives it for all `t` in one sweep: O(R n log(R n)).
- `grid_scan` is the paper's heuristic: around each end of the worker that is first done, the nearest end of each other.
- `full_grid_scan` does the same around each end of every worker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paceline.sync.errors import PlanError

Floats = NDArray[np.float64]
Predictor = Literal["robust", "last"]


class Plan(NamedTuple):
    """A barrier: how many iterations ahead each worker stops, how long the first waits for the last, and when it is."""

    stops: NDArray[np.intp]
    wait: float
    at: float


def zipline(ends: ArrayLike) -> Plan:
    """The plan with the least wait; the earliest, if several have it."""
    ends = _checked(ends)
    n, horizon = ends.shape
    total = n * horizon
    flat = ends.ravel()
    order = flat.argsort()
    times = flat[order]
    rank = np.empty(total, dtype=np.intp)
    rank[order] = np.arange(total)
    rank = rank.reshape(n, horizon)
    successor = np.empty((n, horizon), dtype=np.intp)  # the rank of the same worker's next end
    successor[:, :-1] = rank[:, 1:]
    successor[:, -1] = total
    replaced = np.maximum.accumulate(successor.ravel()[order])
    # The end of rank k is the earliest of all latest ends from the moment that all before it are replaced, and that
    # every worker has an end at all, until it is replaced itself.
    since = np.empty(total, dtype=np.intp)
    since[0] = 0
    since[1:] = replaced[:-1]
    np.maximum(since, rank[:, 0].max(), out=since)
    earliest = (replaced > since).nonzero()[0]
    latest = times[since[earliest]]
    waits = latest - times[earliest]
    best = waits.argmin()
    at = latest[best]
    return Plan((ends <= at).sum(axis=1), float(waits[best]), float(at))


def grid_scan(ends: ArrayLike) -> Plan:
    """The paper's heuristic, around the ends of the worker that finishes an iteration first."""
    ends = _checked(ends)
    return _scan(ends, int(ends[:, 0].argmin()))


def full_grid_scan(ends: ArrayLike) -> Plan:
    """The best that `grid_scan` finds around the ends of any worker."""
    ends = _checked(ends)
    return min((_scan(ends, row) for row in range(len(ends))), key=lambda plan: plan.wait)


PLANNERS: dict[str, Callable[[ArrayLike], Plan]] = {
    "zipline": zipline,
    "grid_scan": grid_scan,
    "full_grid_scan": full_grid_scan,
}


def predict(
    intervals: Sequence[Sequence[float]],
    begun: Sequence[float],
    horizon: int,
    *,
    how: Predictor = "robust",
    first: Sequence[int] | int = 0,
    last: Sequence[int] | None = None,
) -> Floats:
    """When each worker is expected to finish its next iterations, if it goes on at its pace of late.

    The pace is the last interval, as in the paper, or the median of the recent ones. `begun` says when each worker
    began the iteration that it is in. Columns start with that iteration, or `first` after it; a row that has a `last`
    choice repeats it to its end.
    """
    if how == "last":
        pace = np.array([recent[-1] for recent in intervals])
    else:
        pace = np.array([sorted(recent)[len(recent) // 2] for recent in intervals])
    ahead = np.arange(horizon) + np.atleast_1d(np.asarray(first))[:, None]
    if last is not None:
        ahead = np.minimum(ahead, np.asarray(last)[:, None])
    ends: Floats = np.asarray(begun, dtype=np.float64)[:, None] + (ahead + 1) * pace[:, None]
    return ends


def _scan(ends: Floats, row: int) -> Plan:
    """The best plan that has an end of this row, and of each other row the end nearest to it."""
    horizon = ends.shape[1]
    centers = ends[row]
    after = np.minimum(_before(ends, centers), horizon - 1)
    before = np.maximum(after - 1, 0)
    sooner = centers - np.take_along_axis(ends, before, axis=1)
    later = np.take_along_axis(ends, after, axis=1) - centers
    nearest = np.where(sooner <= later, before, after)
    nearest[row] = np.arange(horizon)
    picked = np.take_along_axis(ends, nearest, axis=1)
    latest = picked.max(axis=0)
    waits = latest - picked.min(axis=0)
    best = int(waits.argmin())
    stops = (ends < picked[:, best, None]).sum(axis=1) + 1  # of ends at the same time the first
    return Plan(stops, float(waits[best]), float(latest[best]))


def _before(ends: Floats, times: Floats) -> NDArray[np.intp]:
    """How many ends of each row lie before each of the times: a binary search in all rows at once."""
    n, horizon = ends.shape
    found = np.zeros((n, len(times)), dtype=np.intp)
    step = 1 << (horizon.bit_length() - 1)
    while step:
        further = np.minimum(found + step, horizon)
        found = np.where(np.take_along_axis(ends, further - 1, axis=1) < times, further, found)
        step >>= 1
    return found


def _checked(ends: ArrayLike) -> Floats:
    try:
        array: Floats = np.ascontiguousarray(ends, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PlanError(f"ends must be numbers, as many for each worker: {error}") from error
    if array.ndim != 2 or array.size == 0:
        raise PlanError(f"ends must be workers x R with at least one of each, not of shape {array.shape}")
    if not (np.isfinite(array[:, 0]).all() and np.isfinite(array[:, -1]).all()):
        worker = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise PlanError(f"the ends of worker {worker} are not all finite: {array[worker]}")
    if not (array[:, 1:] >= array[:, :-1]).all():
        worker = int(np.flatnonzero(~(array[:, 1:] >= array[:, :-1]).all(axis=1))[0])
        raise PlanError(f"the ends of worker {worker} do not ascend: {array[worker]}")
    return array
