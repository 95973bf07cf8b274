"""Who is where: the iteration of every live worker, the slowest and the fastest of them, and the shard's clock.

Workers are counted by the iteration that they are in. A push moves its worker from one count to another, which costs
the same for ten workers as for ten thousand; no operation here walks over all of them.

With ten thousand, a worker's record has left the processor's cache when its next message comes. So a record is small,
in few pieces, and what comes and goes with every message is nothing that the garbage collector has to follow.
"""

from __future__ import annotations

from struct import pack, unpack
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from paceline.sync.events import Pulled, Stop

NAMED = 4  # how many of the workers that are waited for a reason names
LOOKED_AT = 16  # and out of how many it picks them
GONE = -1  # the iteration of who has left


class Held(Struct, gc=False, eq=False):
    """A pull that is not answered yet, and the one of the same worker that was held before it, if that still waits."""

    pull: Pulled
    since: float
    before: Held | None


class Member:
    """One life of one worker, as a shard sees it. With twelve fields it takes two lines of the cache."""

    __slots__ = (
        "granted",
        "granted_at",
        "held",
        "incarnation",
        "intervals",
        "next",
        "seen",
        "sequence",
        "significance",
        "stop",
        "told",
        "worker",
    )

    def __init__(self, worker: int, incarnation: int, start: int, version: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.next = start  # the iteration it is in: one past the last that it pushed; or GONE
        self.seen = version  # the version that it computes from
        self.granted = -2  # the iteration of its last granted pull; the first pull of all has -1
        self.granted_at: float | None = None  # when that was; None once the next push has been timed by it
        self.intervals = b""  # its last few times from grant to push, as doubles, oldest first
        self.significance = 0.0  # of its last push
        self.sequence = -1  # of its last push
        self.stop: Stop | None = None  # the stop that its last grant told it
        self.told: Stop | None = None  # the stop that came with its last push
        self.held: Held | None = None  # the newest of its pulls that are not answered yet

    def time(self, interval: float, wanted: int) -> None:
        """Note how long an iteration took, and forget all but the last `wanted`."""
        self.intervals = (self.intervals + pack("d", interval))[-8 * wanted :]

    def recent(self) -> tuple[float, ...]:
        """The intervals that are kept, oldest first."""
        return unpack(f"{len(self.intervals) // 8}d", self.intervals)

    def waiting(self) -> list[Held]:
        """Its pulls that are not answered yet, oldest first."""
        found, held = [], self.held
        while held is not None:
            found.append(held)
            held = held.before
        return found[::-1]

    def answer(self, held: Held) -> None:
        """This pull waits no longer."""
        if self.held is held:
            self.held = held.before
            return
        for later in self.waiting():
            if later.before is held:
                later.before = held.before


class Crowd:
    """Who is in one iteration: how many, and everyone who has come into it, also those that have gone on since."""

    __slots__ = ("came", "size")

    def __init__(self) -> None:
        self.size = 0
        self.came: list[Member] = []


class Progress:
    """The members of a shard by iteration, and the clock `V`."""

    __slots__ = ("_crowds", "clock", "fastest", "members", "passed", "slowest")

    def __init__(self) -> None:
        self.members: dict[int, Member] = {}
        self.clock = 0  # V: the round that is not closed yet
        self.passed = 0  # how many members are past V
        self.slowest = 0  # the least iteration that a member is in
        self.fastest = 0  # the greatest
        self._crowds: dict[int, Crowd] = {}

    def add(self, worker: int, incarnation: int, start: int, version: int) -> Member:
        member = Member(worker, incarnation, start, version)
        if not self.members:
            self.slowest = self.fastest = start
        self.members[worker] = member
        self._put(member, start)
        self.slowest = min(self.slowest, start)
        if start > self.clock:
            self.passed += 1
        return member

    def remove(self, member: Member) -> None:
        del self.members[member.worker]
        at, member.next, member.held = member.next, GONE, None
        self._take(at)
        if at > self.clock:
            self.passed -= 1
        if self._crowds and at not in self._crowds:
            if at == self.slowest:
                self.slowest = min(self._crowds)
            if at == self.fastest:
                self.fastest = max(self._crowds)

    def move(self, member: Member, to: int) -> None:
        """Put a member into iteration `to`, which is not before its own."""
        at = member.next
        self._put(member, to)
        self._take(at)
        if at <= self.clock < to:
            self.passed += 1
        if at == self.slowest and at not in self._crowds:
            self.slowest = at + 1 if at + 1 in self._crowds else min(self._crowds)

    def next_round(self) -> int:
        """The round after `V`: the first later iteration that somebody is in. Those between are empty."""
        after = self.clock + 1
        if after in self._crowds or self.fastest <= after:
            return after
        return min(at for at in self._crowds if at > self.clock)

    def advance(self, to: int) -> None:
        """Go on to the next round, or to the slowest member if that is further."""
        if to > self.clock:
            self.clock = to
            crowd = self._crowds.get(to)
            if crowd is not None:
                self.passed -= crowd.size

    def count(self, iteration: int) -> int:
        """How many members have pushed `iteration`, or are past it. At once for the open round."""
        if iteration == self.clock:
            return self.passed
        return sum(crowd.size for at, crowd in self._crowds.items() if at > iteration)

    def laggards(self) -> tuple[int, ...]:
        """One or a few of the members that are in the open round, or else of the slowest."""
        at = self.clock if self.clock in self._crowds else self.slowest
        crowd = self._crowds.get(at)
        if crowd is None:
            return ()
        came = crowd.came
        while came[-1].next != at:
            came.pop()
        found = []
        for member in came[: -LOOKED_AT - 1 : -1]:
            if member.next == at:
                found.append(member.worker)
                if len(found) == NAMED:
                    break
        return tuple(found)

    def _put(self, member: Member, at: int) -> None:
        crowd = self._crowds.get(at)
        if crowd is None:
            crowd = self._crowds[at] = Crowd()
            if at > self.fastest:
                self.fastest = at
        crowd.size += 1
        crowd.came.append(member)
        member.next = at

    def _take(self, at: int) -> None:
        crowd = self._crowds[at]
        crowd.size -= 1
        if not crowd.size:
            del self._crowds[at]
