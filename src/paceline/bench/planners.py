"""How long a plan takes, beside the paper's table II and beside a sort of the same points."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from paceline.bench.clock import looped, take_turns
from paceline.sync.zipline import PLANNERS, Floats

SIZES = [(10, 15), (10, 150), (100, 15), (100, 150), (1000, 15), (1000, 150)]  # workers x R
PAPER = {  # microseconds in the paper's table II, on a 2.4 GHz Xeon E5-2620 v3
    "zipline": dict(zip(SIZES, (149, 1320, 6370, 49_900, 253_000, 2_380_000), strict=True)),
    "grid_scan": dict(zip(SIZES, (168, 5500, 1110, 43_800, 7450, 257_000), strict=True)),
    "full_grid_scan": dict(zip(SIZES[:5], (1540, 46_700, 81_300, 2_150_000, 4_040_000), strict=True)),
}
LARGE = (100_000, 15)


class PlannerRow(Struct):
    """One planner at one size. `of_sort` is its time over that of `numpy.sort` of the same points, in the same run."""

    planner: str
    workers: int
    horizon: int
    microseconds: float
    paper_microseconds: float | None
    times_faster: float | None
    of_sort: float


def measure(repeats: int = 7) -> Iterator[PlannerRow]:
    for planner, sizes in PAPER.items():
        for size in sizes:
            yield row(planner, size, repeats)
    yield row("zipline", LARGE, repeats)


def predicted_ends(workers: int, horizon: int, seed: int = 0) -> Floats:
    """Workers whose paces differ by up to four times, and whose iterations differ by 10 %."""
    random = np.random.default_rng(seed)
    pace = random.uniform(0.5, 2.0, workers)
    intervals = pace[:, None] * random.uniform(0.9, 1.1, (workers, horizon))
    return np.cumsum(intervals, axis=1)


def row(planner: str, size: tuple[int, int], repeats: int) -> PlannerRow:
    """One planner at one size, in turns with the sort."""
    workers, horizon = size
    ends = predicted_ends(workers, horizon)
    points = ends.ravel().copy()
    paper = PAPER[planner].get(size)
    expected = workers * horizon * (workers if planner == "full_grid_scan" else 1)
    times = max(1, 100_000 // expected)
    few = repeats if expected < 10**7 else 1
    seconds = take_turns(
        {"plan": looped(lambda: PLANNERS[planner](ends), times), "sort": looped(lambda: np.sort(points), times)}, few
    )
    taken = seconds["plan"] / times * 1e6
    return PlannerRow(
        planner, workers, horizon, taken, paper, paper / taken if paper else None, seconds["plan"] / seconds["sort"]
    )
