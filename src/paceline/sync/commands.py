"""What a shard can answer, and why.

`Shard.handle` returns these in the order in which the driver must carry them out: gradients are applied before the
round that they close advances, and a round advances before the pulls that waited for it are granted.

Every command has a `Reason`. It is what timelines, traces and error messages show: who waited, for whom, under which
rule.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from paceline.sync.events import Stop

Cause = Literal[
    # a pull
    "open",  # the pull condition holds
    "ahead",  # the pull condition does not hold: held
    "closed",  # held until now; the round it was filed under has closed
    "model",  # held until now; another model lets it go
    # a push
    "fresh",  # taken
    "late",  # its round has closed already
    # a round
    "complete",  # the push condition holds
    "left",  # it holds since a worker left
    "timer",  # it holds since a timeout passed
    # a timer
    "timeout",  # the model wants to be asked again at that time
    # what is refused or was answered before
    "repeat",  # this very message was answered before
    "order",  # the worker has pushed this iteration, or a later one, already
    "stranger",  # the sender is not a member (any more)
    "zombie",  # the sender is an earlier life of a member
]


class Reason(Struct, frozen=True, gc=False, array_like=True):
    """Which rule decided, how, and on whom the sender waits.

    `gap` is how many iterations the worker is ahead of the shard's clock. `missing` counts the workers that have not
    finished the open round, and `waiting_for` names them, or the first few of them.
    """

    rule: str
    cause: Cause
    gap: int = 0
    missing: int = 0
    waiting_for: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = f"{self.cause} under {self.rule}"
        if self.gap > 0:
            text += f", {self.gap} ahead"
        if self.waiting_for:
            text += f", for worker {', '.join(map(str, self.waiting_for))}"
            if self.missing > len(self.waiting_for):
                text += f" and {self.missing - len(self.waiting_for)} more"
        return text


class Grant(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Answer this pull with the parameters as they are now.

    `clock` is the shard's open round, the papers' timestamp; `next` the iteration the worker goes on with; `stop` the
    plan of ElasticBSP, from the shard that plans; `incarnation` which life of the worker has asked.
    """

    worker: int
    iteration: int
    version: int
    clock: int
    next: int
    reason: Reason
    stop: Stop | None = None
    incarnation: int = 0


class Hold(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Do not answer this pull yet; a `Grant` for it follows."""

    worker: int
    iteration: int
    reason: Reason


class Apply(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Hand this gradient to the update rule.

    With `round` it is summed into that round, which is applied once, when it closes. Without, it is applied at once.
    `staleness` counts the updates between the version it was computed from and this one.
    """

    worker: int
    iteration: int
    staleness: int
    reason: Reason
    round: int | None = None


class Drop(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Do not use this message.

    A repeated push has `answer`, what the first copy got: send that acknowledgement again.
    """

    worker: int
    iteration: int
    reason: Reason
    answer: Literal["applied", "dropped"] | None = None


class Advance(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """The rounds from `iteration` up to `to`, not included, are closed: one as a rule, none or many at a barrier.

    `gradients` counts those summed into these rounds; where there are any, apply each round's sum now. `version` is the
    shard's after that.
    """

    iteration: int
    to: int
    gradients: int
    version: int
    reason: Reason


class SetTimer(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """Hand in `TimerFired(timer)` at the time `at`. One that has lost its point by then is ignored."""

    at: float
    timer: int
    reason: Reason


Command = Grant | Hold | Apply | Drop | Advance | SetTimer
