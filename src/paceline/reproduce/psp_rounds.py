"""PSP-SGD's rounds on equal workers, for many spreads of the pulls' delays at once.

Where messages to all servers leave at one time and lines take none, all shards close a round at the same time. So a
worker's wait is one figure, the slowest of the blocks that it needs, and a round costs 32 draws instead of thousands of
messages. That the simulator, which has the messages, takes as long is a test.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import ceil

import numpy as np
from numpy.typing import NDArray

Delays = Callable[[np.random.Generator], NDArray[np.float64]]  # of one worker's pull, from every server


def tailed(servers: int, chance: float, late: float, median: float, sigma: float) -> Delays:
    """Some answers are late, by always as much; all take a time of their own, lognormal."""

    def draw(random: np.random.Generator) -> NDArray[np.float64]:
        ordinary = median * np.exp(sigma * random.standard_normal(servers))
        return ordinary + late * (random.random(servers) < chance)

    return draw


def scattered(servers: int, chance: float, late: float, by: float) -> Delays:
    """Some answers are late, evenly up to `by` more or less; the others take no time."""

    def draw(random: np.random.Generator) -> NDArray[np.float64]:
        return random.uniform(late - by, late + by, servers) * (random.random(servers) < chance)

    return draw


def seconds_per_round(
    delays: Delays, base: float, *, workers: int, c: int, b: float, rounds: int, seed: int = 0
) -> float:
    """A round closes with the c-th gradient that is not older than it; a worker starts with a share b of its blocks."""
    random = np.random.default_rng(seed)

    def wait() -> float:
        blocks = np.sort(delays(random))
        return float(blocks[ceil(b * len(blocks) - 1e-9) - 1])

    ends = [(wait() + base, worker, 0) for worker in range(workers)]
    heapify(ends)
    clock, waiting, now = 0, list[int](), 0.0
    while clock < rounds:
        now, worker, iteration = heappop(ends)
        if iteration < clock:  # too late: dropped, and answered at once
            heappush(ends, (now + wait() + base, worker, clock))
            continue
        waiting.append(worker)
        if len(waiting) >= c:
            clock += 1
            for one in waiting:
                heappush(ends, (now + wait() + base, one, clock))
            waiting.clear()
    return now / rounds
