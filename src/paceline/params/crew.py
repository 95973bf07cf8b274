"""Threads that share out the pieces of a row.

One core cannot fill the memory's bandwidth. The threads block while there is nothing to do, unlike those of torch,
which go on looking for work and take the time of whoever computes on the same cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

ENOUGH = 2  # pieces of one row that are worth another thread
TOGETHER = 2  # as large are pieces that threads share: for each, one waits for Python's lock, which the other has


def cut(size: int, piece: int) -> list[slice]:
    """A row of this size in pieces."""
    return [slice(start, min(start + piece, size)) for start in range(0, size, piece)]


class Crew:
    """This many threads, the caller's own among them."""

    def __init__(self, threads: int = 1) -> None:
        if threads < 1:
            raise ValueError(f"a crew of {threads} cannot do anything; it has 1 thread or more")
        self.threads = threads
        self._others: ThreadPoolExecutor | None = None

    def cut(self, size: int, piece: int) -> list[slice]:
        """A row of this size in pieces, to be shared out; those for one thread alone would have `piece` elements."""
        return cut(size, piece if self.threads == 1 else TOGETHER * piece)

    def share(
        self, pieces: Sequence[slice], work: Callable[[int, Iterable[slice]], Result], rows: int = 1
    ) -> list[Result]:
        """`work(share, pieces)` on as many threads as pay, each of which takes the next piece until none is left.

        So one that is woken late, or has less of its core, has fewer. `rows` is how many rows are cut so and worked on
        together. Returns the results of all shares, in order of their numbers.
        """
        shares = max(1, min(self.threads, len(pieces), len(pieces) * rows // ENOUGH))
        if shares == 1:
            return [work(0, pieces)]
        if self._others is None:
            self._others = ThreadPoolExecutor(self.threads - 1, "paceline crew")
        left = iter(pieces)  # which threads may share: one step of it is one step of Python
        others = [self._others.submit(work, share, left) for share in range(1, shares)]
        try:
            mine = work(0, left)
        finally:  # nobody may still be at it when this is left
            for other in others:
                other.exception()
        return [mine, *(other.result() for other in others)]
