"""Which blocks a worker waits for before it computes: the worker's side of PSP-SGD's algorithm 1.

A worker asks every shard for its block. It starts once the share `b` of the blocks has come, `tau` later, or as soon as
all have; the wait for `b` itself is never cut short. A block that is missing by then keeps its last value, and when it
comes it is taken at the next start. It works with every synchronization model, not with `psp` alone.

A block's age is the `next` of the grant that brought it: the iteration that a worker with this block goes on with. A
worker that gets a block from further on jumps there; else, once behind, it would have every later gradient dropped.
"""

from __future__ import annotations

from math import ceil
from typing import Literal

from msgspec import Struct

from paceline.sync.errors import EventError
from paceline.sync.events import TimerFired


class Asked(Struct, frozen=True, gc=False):
    """The worker has finished `iteration` and has asked every shard for its block."""

    iteration: int


class Arrived(Struct, frozen=True, gc=False):
    """A block has come; `next` is that of its grant."""

    block: int
    next: int


class Start(Struct, frozen=True, gc=False):
    """Put the blocks of `take` in place and compute `iteration`; those of `missing` keep the value they have."""

    iteration: int
    take: tuple[int, ...]
    missing: tuple[int, ...]
    reason: Literal["all", "share", "timeout"]


class SetPullTimer(Struct, frozen=True, gc=False):
    """Hand in `TimerFired(timer)` at the time `at`."""

    at: float
    timer: int
    missing: tuple[int, ...]


class PartialPull:
    """A worker's wait for its blocks: events in, commands out, as with a shard."""

    def __init__(self, blocks: int, b: float = 1.0, tau: float = 0.0) -> None:
        self._from_next = _checked(blocks, b, tau)
        self.needed, self.tau = self._from_next
        self._newest = [-1] * blocks  # what has come
        self._taken = [-1] * blocks  # what is in place
        self._wanted: int | None = None  # None while the worker computes
        self._fresh = 0
        self._timer = 0
        self._deadline: float | None = None

    @property
    def waiting(self) -> bool:
        return self._wanted is not None

    @property
    def waits_for_all(self) -> bool:
        """Is there a wait that only the last block can end?"""
        return self.waiting and self.needed == len(self._newest)

    def newest(self, block: int) -> int:
        """How new the newest is that has come of this block; -1 if none has."""
        return self._newest[block]

    def change(self, b: float, tau: float) -> None:
        """Wait for this share from the next time on that the worker asks; a wait under way ends as it began."""
        self._from_next = _checked(len(self._newest), b, tau)

    def handle(self, event: Asked | Arrived | TimerFired, now: float) -> list[Start | SetPullTimer]:
        if isinstance(event, Arrived):
            self._arrived(event.block, event.next)
        elif isinstance(event, Asked):
            self._asked(event.iteration)
        elif isinstance(event, TimerFired):
            early = self._deadline is not None and now < self._deadline
            if self._wanted is not None and early and event.timer == self._timer:
                return [self._set_timer(self._wanted)]
        else:
            raise EventError(f"{event!r} is no event; a worker's wait takes Asked, Arrived, TimerFired")
        if self._wanted is None or self._fresh < self.needed:
            return []
        return self._decide(self._wanted, now)

    def _asked(self, iteration: int) -> None:
        if self._wanted is not None:
            raise EventError(f"iteration {iteration} asks while iteration {self._wanted - 1} still waits")
        self._wanted = iteration + 1
        self.needed, self.tau = self._from_next
        self._fresh = sum([newest > iteration for newest in self._newest])
        self._deadline = None

    def _arrived(self, block: int, onward: int) -> None:
        if not 0 <= block < len(self._newest):
            raise EventError(f"there is no block {block}; there are 0 to {len(self._newest) - 1}")
        newest = self._newest[block]
        if self._wanted is not None and newest < self._wanted <= onward:
            self._fresh += 1
        if onward > newest:
            self._newest[block] = onward

    def _decide(self, wanted: int, now: float) -> list[Start | SetPullTimer]:
        """Enough has come to start with."""
        if self._fresh == len(self._newest):
            return [self._start(wanted, "all")]
        if self._deadline is None:
            self._deadline = now + self.tau
            return [self._set_timer(wanted) if self.tau > 0 else self._start(wanted, "share")]
        return [self._start(wanted, "timeout")] if now >= self._deadline else []

    def _set_timer(self, wanted: int) -> SetPullTimer:
        assert self._deadline is not None
        self._timer += 1
        return SetPullTimer(self._deadline, self._timer, self._missing(wanted))

    def _start(self, wanted: int, reason: Literal["all", "share", "timeout"]) -> Start:
        take = tuple([block for block, newest in enumerate(self._newest) if newest > self._taken[block]])
        missing = () if reason == "all" else self._missing(wanted)
        self._taken = self._newest.copy()
        self._wanted = None
        return Start(max(self._newest), take, missing, reason)

    def _missing(self, wanted: int) -> tuple[int, ...]:
        return tuple(block for block, newest in enumerate(self._newest) if newest < wanted)


def _checked(blocks: int, b: float, tau: float) -> tuple[int, float]:
    """How many blocks the share `b` is, and `tau`."""
    if blocks < 1 or not 0 < b <= 1 or tau < 0:
        raise EventError(f"{blocks} blocks, b={b}, tau={tau}: needs a block, 0 < b <= 1 and tau >= 0")
    return max(1, ceil(b * blocks - 1e-9)), tau  # 0.28 * 25 is 7 blocks, not 7.000000000000001
