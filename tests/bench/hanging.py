"""A rival whose second worker never finishes a round."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from paceline.bench.rivals.member import Place, Rounds


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    def rounds(n: int) -> None:
        if place.rank == 1:
            sys.stderr.write("waiting for ever\n")
            Event().wait()

    yield rounds
