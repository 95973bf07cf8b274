"""The limit: one core that copies as many bytes as a round moves, every push and every pull once, and does no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from paceline.bench.rivals.member import Place, Rounds


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    source = np.ones(place.elements, np.float32).data
    target = np.zeros(place.elements, np.float32).data

    def rounds(n: int) -> None:
        for _ in range(n * 2 * place.workers):
            target[:] = source

    yield rounds
