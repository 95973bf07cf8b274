"""The process side of a group: takes its place in a rival, and does rounds when it is told.

    it says                 ready
    it is told              how many rounds
    it does one and says    warm
    it is told              go
    it does them and says   when it began and when it ended
    its stdin ends          it leaves

Between the lines it sleeps. Times are of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from time import perf_counter
from typing import Literal

import msgspec

Role = Literal["worker", "server"]
Rounds = Callable[[int], None]  # does so many
RATE = 0.5  # the learning rate; a power of two, so that the check is exact
PATIENCE = 120.0  # seconds for any step between the processes of a group


class Place(msgspec.Struct, frozen=True):
    """Who a process is in its group. `folder` is where the group can meet."""

    role: Role
    rank: int
    workers: int
    servers: int
    elements: int
    folder: str

    @property
    def expected(self) -> float:
        """Each parameter after the first round, if worker r pushes r + 1 and they start at 0."""
        return -RATE * self.workers * (self.workers + 1) / 2

    def check(self, smallest: float, largest: float) -> None:
        """Did the first round do what a round is?"""
        if not smallest == largest == self.expected:
            raise AssertionError(f"after a round the parameters are {smallest} to {largest}, not {self.expected}")


Work = Callable[[Place], AbstractContextManager[Rounds]]


def main() -> None:
    module, place = sys.argv[1], msgspec.json.decode(sys.argv[2], type=Place)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints is no answer
    work: Work = import_module(module).work
    with work(place) as rounds:
        print("ready", file=answers)
        for line in sys.stdin:
            rounds(1)
            print("warm", file=answers)
            if not sys.stdin.readline():
                break
            begin = perf_counter()
            rounds(int(line))
            print(begin, perf_counter(), file=answers)
