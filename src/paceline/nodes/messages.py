"""What nodes say to each other: small tagged structs, as msgpack, with the bulk beside them on the wire.

worker  <-> coordinator    who takes part, where the parameters are, is everyone alive
server  <-> coordinator    what to serve, who comes and goes
worker  <-> server         gradients and parameters
server  <-> server         norms of tensors that are cut between them
worker  <-> State Server   under esync: is there time for another local iteration
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from paceline.nodes.errors import WrongRequest
from paceline.params import Optimizer
from paceline.params.norms import Norms as PartialNorms
from paceline.sync import Stop
from paceline.wire import Address

Outcome = Literal["applied", "dropped", "refused"]
VALUES = ""  # the name of the row that has the parameters themselves


class Message(Struct, frozen=True, array_like=True, tag=True):
    """The base of all of them; the tag is the class's name."""


# Who takes part.


class Shape(Struct, frozen=True, array_like=True):
    """One tensor of a worker's model."""

    name: str
    shape: tuple[int, ...]


class Place(Struct, frozen=True, array_like=True):
    """A shard: the elements from `start` up to `stop`, on one server."""

    shard: int
    start: int
    stop: int
    server: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Member(Struct, frozen=True, array_like=True):
    """One life of one worker."""

    worker: int
    incarnation: int


class WorkerHello(Message, frozen=True):
    """A worker introduces itself, to the coordinator and to servers. Without a number it gets one."""

    worker: int | None
    pid: int
    incarnation: int = 0


class ServerHello(Message, frozen=True):
    server: int
    pid: int


class StateServerHello(Message, frozen=True):
    pid: int


class OperatorHello(Message, frozen=True):
    """Somebody who changes a run from outside, and does not take part."""

    pid: int


class Describe(Message, frozen=True):
    """Which parameters a worker has, and the optimizer it wants for them, if not the job's."""

    tensors: list[Shape]
    dtype: str
    optimizer: Optimizer | None = None


class Serving(Message, frozen=True):
    """Where a server, or the State Server, can be reached."""

    address: Address


class Serve(Message, frozen=True):
    """What a server is to hold, and for whom."""

    tensors: list[Shape]
    dtype: str
    places: list[Place]  # all of them, not this server's alone
    members: list[Member]
    servers: dict[int, Address]
    optimizer: Optimizer


class Ready(Message, frozen=True):
    """The server is up with its shards."""


class Begin(Message, frozen=True):
    """A worker may start: who it is, and where everything is."""

    worker: int
    incarnation: int
    places: list[Place]
    servers: dict[int, Address]
    initial: bool  # is it the one that gives the first parameters?
    state_server: Address | None = None


class Initialised(Message, frozen=True):
    """All shards of this server have their first parameters."""


class Admit(Message, frozen=True):
    """A worker joins a run that is under way."""

    member: Member


class Admitted(Message, frozen=True):
    member: Member


class Expel(Message, frozen=True):
    """A worker is gone."""

    member: Member


class Lost(Message, frozen=True):
    """A server's connection to a worker has broken."""

    member: Member
    why: str


class Finished(Message, frozen=True):
    """A worker is done and leaves in good order."""


class Alive(Message, frozen=True):
    """A heartbeat."""


class Halt(Message, frozen=True):
    """The run is over, for good or ill."""

    kind: str | None = None
    words: str = ""


class Change(Message, frozen=True):
    """Put another model in force, on all shards or on one."""

    sync: str
    shard: int | None = None


class Changed(Message, frozen=True):
    """Answers `Change`; with words, it was refused."""

    error: str | None = None


class AtBarrier(Message, frozen=True):
    iteration: int


class PassBarrier(Message, frozen=True):
    iteration: int


# Gradients and parameters.


class Number(Struct, frozen=True, array_like=True):
    """A number that an optimizer remembers, and its type in torch."""

    dtype: Literal["float32", "float64", "int32", "int64", "bool"]
    value: int | float


class Row(Message, frozen=True):
    """A number for each element of a shard, as payload: what the optimizer remembers under this name, or VALUES."""

    shard: int
    name: str


class Initial(Message, frozen=True):
    """The first parameters of a shard, as payload, after the rows of what the optimizer is to remember.

    `clock` is how many iterations there were before this run, and `steps` how many steps of the optimizer.
    """

    shard: int
    clock: int = 0
    steps: int = 0
    numbers: dict[str, Number] = {}


class Push(Message, frozen=True):
    """A gradient, as payload. Without `answer`, only a refusal is answered: the granted pull tells the rest.

    With `pull` it is also the pull of the same iteration. `norms` has |w|² and |g|² of whole tensors that the shard has
    only a part of, for LARS. `rates` are learning rates to use instead of the optimizer's, one for each group.
    `residual` is the norm of what the worker's codec has held back so far.
    """

    shard: int
    iteration: int
    sequence: int
    significance: float = 0.0
    stop: Stop | None = None
    answer: bool = True
    pull: bool = False
    norms: dict[str, tuple[float, float]] = {}
    rates: tuple[float, ...] | None = None
    residual: float = 0.0


class Pull(Message, frozen=True):
    shard: int
    iteration: int
    stop: Stop | None = None


class Answer(Message, frozen=True):
    """What became of a push."""

    shard: int
    iteration: int
    outcome: Outcome
    why: str = ""


class Parameters(Message, frozen=True):
    """A granted pull, with one version of the shard's values as payload.

    `weigh` asks the worker to measure the significance of its next gradient. `held_for` names for whom it was held.
    `origin` is how many iterations there were before this run. `pull` has the share of blocks that the worker may start
    with from its next pull on, and for how many seconds it then waits for more; None: it waits for all.
    """

    shard: int
    iteration: int
    version: int
    clock: int
    next: int
    stop: Stop | None = None
    weigh: bool = False
    held_for: tuple[int, ...] = ()
    origin: int = 0
    pull: tuple[float, float] | None = None


class Save(Message, frozen=True):
    """Asks a server for a copy of all its shards as they are now."""


class Saved(Message, frozen=True):
    """A shard has been copied; these rows of it follow."""

    shard: int
    clock: int
    steps: int
    rows: list[str]
    numbers: dict[str, Number]


class Failed(Message, frozen=True):
    """Something this peer sent cannot be used. Nothing has changed by it."""

    kind: str
    words: str


class RoundBegan(Message, frozen=True):
    """A worker has the parameters of a round of local iterations."""

    round: int


class Query(Message, frozen=True):
    """After so many local iterations, the last of which took `capability` seconds: is the worker ready?"""

    round: int
    steps: int
    capability: float


class State(Message, frozen=True):
    """Answers a `Query`. `most` is how many local iterations the fastest worker has done in the round."""

    round: int
    steps: int
    ready: bool
    most: int


class Norms(Message, frozen=True):
    """A shard has closed the rounds before `to`: its parts of the norms, for those that had gradients."""

    shard: int
    to: int
    rounds: dict[int, PartialNorms]


AnyMessage = (
    WorkerHello
    | ServerHello
    | StateServerHello
    | OperatorHello
    | Describe
    | Serving
    | Serve
    | Ready
    | Begin
    | Initialised
    | Admit
    | Admitted
    | Expel
    | Lost
    | Finished
    | Alive
    | Halt
    | Change
    | Changed
    | AtBarrier
    | PassBarrier
    | Row
    | Initial
    | Push
    | Pull
    | Answer
    | Parameters
    | Save
    | Saved
    | Failed
    | RoundBegan
    | Query
    | State
    | Norms
)

encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AnyMessage).decode


def decode(header: bytes) -> AnyMessage:
    """The message in a header; WrongRequest if it is none of these."""
    try:
        message: AnyMessage = _decode(header)
        return message
    except msgspec.DecodeError as error:
        raise WrongRequest(f"a message of {len(header)} bytes cannot be read: {error}") from None
