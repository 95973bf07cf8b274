"""A worker's side of the protocol: what it sends to the shards, and when it goes on.

    begin            pulls with -1 from every shard
    an iteration     pushes its gradient to every shard, then pulls from every shard
    enough grants    computes the iteration that they say is next

It repeats the stop that the first shard told it on every message, so that the others learn of ElasticBSP's plan. How
many grants are enough is up to `PartialPull`: all of them, unless the user lets it start with fewer. Where shards are
under different models, the one that wants most is heard. So before a worker starts without a block, the newest grant of
every shard has said that it may.
"""

from __future__ import annotations

from paceline.sync.commands import Grant
from paceline.sync.events import Pulled, Pushed, Stop, TimerFired
from paceline.sync.partial_pull import Arrived, Asked, PartialPull, SetPullTimer, Start

Message = tuple[int, Pushed | Pulled]  # to which shard, and what


class Worker:
    """One life of one worker, on any number of shards."""

    def __init__(self, worker: int, shards: int, *, incarnation: int = 0, b: float = 1.0, tau: float = 0.0) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.iteration = -1  # the one under way, or the last one done
        self._shards = shards
        self._stop: Stop | None = None
        self._pulling = PartialPull(shards, b, tau)
        self._shares = [(b, tau)] * shards  # by shard: what its model lets the worker start with

    @property
    def waiting(self) -> bool:
        return self._pulling.waiting

    @property
    def waits_for_all(self) -> bool:
        """Is there a wait that only the last block can end?"""
        return self._pulling.waits_for_all

    def is_new(self, shard: int, onward: int) -> bool:
        """Is a block of this age newer than all that have come of its shard?"""
        return onward > self._pulling.newest(shard)

    def told(self, shard: int, b: float, tau: float) -> None:
        """What the model of a shard lets the worker start with, from the next pull on."""
        if self._shares[shard] != (b, tau):
            self._shares[shard] = b, tau
            self._pulling.change(*max(self._shares))

    def begin(self, now: float) -> list[Message]:
        """Ask for the first parameters."""
        self._pulling.handle(Asked(-1), now)
        return [(shard, Pulled(self.worker, -1, self.incarnation)) for shard in range(self._shards)]

    def computed(self, now: float, significance: float = 0.0) -> tuple[list[Message], list[Start | SetPullTimer]]:
        """The iteration under way is done: push, and ask for what comes next.

        Blocks that came late may be new enough for the worker to start again at once.
        """
        push = self.push(significance)
        pull, decisions = self.pull(now)
        messages: list[Message] = [(shard, push) for shard in range(self._shards)]
        messages += [(shard, pull) for shard in range(self._shards)]
        return messages, decisions

    def push(self, significance: float = 0.0) -> Pushed:
        """The iteration under way is done: what to send to every shard."""
        return Pushed(self.worker, self.iteration, self.incarnation, None, significance, self._stop)

    def pull(self, now: float) -> tuple[Pulled, list[Start | SetPullTimer]]:
        """Ask every shard for what comes after the iteration that was pushed."""
        pull = Pulled(self.worker, self.iteration, self.incarnation, self._stop)
        return pull, self._decided(self._pulling.handle(Asked(self.iteration), now))

    def granted(self, shard: int, grant: Grant, now: float) -> list[Start | SetPullTimer]:
        if shard == 0:
            self._stop = grant.stop
        return self._decided(self._pulling.handle(Arrived(shard, grant.next), now))

    def timer_fired(self, timer: int, now: float) -> list[Start | SetPullTimer]:
        return self._decided(self._pulling.handle(TimerFired(timer), now))

    def _decided(self, commands: list[Start | SetPullTimer]) -> list[Start | SetPullTimer]:
        for command in commands:
            if isinstance(command, Start):
                self.iteration = command.iteration
        return commands
