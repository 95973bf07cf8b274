"""What can happen to a shard.

A driver (the simulator, a test, a real server) turns what it sees into these values and hands each, with the time, to
`Shard.handle`. Events are plain frozen values: a recorded list of them replays a run. As data, an event or a command is
an array with its name first.

Messages of one worker to one shard arrive in the order they were sent, possibly more than once. That is what a TCP
connection with a resend after reconnecting gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from paceline.sync.models.base import Model


class Stop(Struct, frozen=True, gc=False, array_like=True):
    """Where one worker stops in one superstep of ElasticBSP.

    The planning shard puts it on its grants; the worker repeats the newest one it knows on every push and pull, and so
    the other shards learn the plan without a message of their own.
    """

    superstep: int
    iteration: int


class Pushed(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A worker's gradient of `iteration` has arrived.

    `sequence` numbers the pushes of one incarnation; without one the iteration serves. `significance` is `|g| / |w|` of
    this gradient, for the models that ask for it.
    """

    worker: int
    iteration: int
    incarnation: int = 0
    sequence: int | None = None
    significance: float = 0.0
    stop: Stop | None = None


class Pulled(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A worker that has finished `iteration` asks for the parameters to go on from; -1 asks for the first ones."""

    worker: int
    iteration: int
    incarnation: int = 0
    stop: Stop | None = None


class Joined(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A worker takes part from now on, from `iteration` or, without one, from the slowest live worker's."""

    worker: int
    incarnation: int = 0
    iteration: int | None = None


class Left(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A worker is gone. With an incarnation, that life of it and those before: a late notice changes nothing."""

    worker: int
    incarnation: int | None = None


class TimerFired(Struct, frozen=True, gc=False, array_like=True, tag=True):
    """The time of a `SetTimer` has come."""

    timer: int


class SetModel(Struct, frozen=True, array_like=True, tag=True):
    """From now on the shard works under another model, given as a value or as an expression."""

    model: Model | str


Event = Pushed | Pulled | Joined | Left | TimerFired | SetModel
