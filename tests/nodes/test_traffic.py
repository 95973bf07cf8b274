"""What an all-reduce is said to move, against a ring that is walked step by step."""

from __future__ import annotations

import pytest

from paceline.nodes import Traffic


def walked(sizes: list[int]) -> int:
    """What worker 0 sends if the parts have these sizes: on to the next worker, first to be summed, then as a sum."""
    workers = len(sizes)
    summed = [sizes[-step % workers] for step in range(workers - 1)]
    shared = [sizes[(1 - step) % workers] for step in range(workers - 1)]
    return sum(summed) + sum(shared)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_all_but_the_own_part_goes_round_twice(workers: int) -> None:
    traffic, part = Traffic(), 120
    for _ in range(2):
        traffic.all_reduced(workers * part, workers)
    assert (traffic.sent, traffic.received, traffic.saved) == (2 * walked([part] * workers),) * 2 + (0,)
