"""What an event costs does not grow with the number of workers.

Times are for `paceline bench machine`; this counts function calls, which are the same on every machine and every run.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from paceline.bench.machine import EXPRESSIONS, model, record
from paceline.sync import Shard


def calls_per_event(name: str, workers: int, iterations: int) -> float:
    """How many functions, Python's and C's, a shard calls per event."""
    recording = record(model(name, workers), workers, 2 * workers * iterations)
    handle = Shard(model(name, workers), workers).handle
    calls = 0

    def count(frame: FrameType, what: str, argument: Any) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for event, now in recording:
            handle(event, now)
    finally:
        sys.setprofile(before)
    return calls / len(recording)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_event_takes_as_many_calls_with_a_thousand_workers_as_with_ten(name: str) -> None:
    few, many = calls_per_event(name, 10, 40), calls_per_event(name, 1000, 40)
    assert many < 1.3 * few
