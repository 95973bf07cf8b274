"""Timing of things that take turns."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

Run = Callable[[], object]


def take_turns(preparations: Mapping[str, Callable[[], Run]], repeats: int) -> dict[str, float]:
    """Prepare and run each in turn, `repeats` times over; the median seconds of each run.

    A first turn warms up and does not count, nor does the preparation.
    """
    seconds: dict[str, list[float]] = {name: [] for name in preparations}
    for turn in range(repeats + 1):
        for name, prepare in preparations.items():
            taken = timed(prepare())
            if turn:
                seconds[name].append(taken)
    return {name: median(taken) for name, taken in seconds.items()}


def timed(run: Run) -> float:
    gc.collect()
    begin = perf_counter()
    run()
    return perf_counter() - begin


def looped(run: Run, times: int) -> Callable[[], Run]:
    """Something so quick that it must be done many times over to be timed, with nothing to prepare."""

    def loop() -> None:
        for _ in range(times):
            run()

    return lambda: loop
