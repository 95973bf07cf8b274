"""What a run is: the same value at every node that takes part.

Its hash is part of every handshake, so that a node of another run, or of this one with other settings, is told so
instead of training on something else.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Struct

from paceline.nodes.errors import WrongRequest
from paceline.params import Optimizer
from paceline.params.codecs import CodecError, codec_of
from paceline.sync import parse
from paceline.sync.models.base import Model, UpdateRule
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP
from paceline.wire import MemoryNetwork, SocketNetwork

Network = SocketNetwork | MemoryNetwork
DDP = "ddp"  # in the place of a model: torch's own all-reduce among the workers, without servers


class Job(Struct, frozen=True, kw_only=True):
    """The settings of a run.

    `deterministic` sums the gradients of a round in the order of the workers' numbers, so that BSP gives the same bits
    as one process. `barrier` makes every pull wait for all workers to meet at the coordinator first: slower, and only
    there to be compared with. A worker that is silent for `silence` seconds counts as dead. `codec` says how gradients
    are written on the way to the servers.
    """

    workers: int
    servers: int = 1
    sync: str = "bsp"
    optimizer: Optimizer = Optimizer()
    seed: int = 0
    shards_per_server: int = 1
    slicing: Literal["elastic", "by-key"] = "elastic"
    update: UpdateRule | None = None
    deterministic: bool = False
    barrier: bool = False
    start_within: float = 60.0
    silence: float = 10.0
    codec: str = "none"

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("servers", 1), ("shards_per_server", 1)):
            if getattr(self, name) < least:
                raise WrongRequest(f"{name} is {getattr(self, name)}; it is a whole number from {least}")
        for name in ("start_within", "silence"):
            if not 0 < getattr(self, name) < float("inf"):
                raise WrongRequest(f"{name} is {getattr(self, name)}; it is a number of seconds above 0")
        try:
            codec = codec_of(self.codec)
        except CodecError as error:
            raise WrongRequest(str(error)) from None
        model = None if self.by_ddp else parse(self.sync)
        if codec is not None and (model is None or (isinstance(model, ESync) and model.aggregate == "all_reduce")):
            raise WrongRequest(
                f"{codec} encodes gradients on their way to servers, and under {self.sync} none go there; leave it out"
            )
        if self.deterministic and (model is None or not waits_for_its_round(model, self.update, self.workers)):
            raise WrongRequest(
                f"deterministic sums need a model whose workers wait for their own round, as bsp does, not {self.sync}"
            )

    @property
    def asks(self) -> bool:
        """Does it need a State Server?"""
        model = None if self.by_ddp else parse(self.sync)
        return isinstance(model, ESync) and model.asks

    @property
    def by_ddp(self) -> bool:
        return self.sync == DDP

    def digest(self) -> str:
        return blake2b(msgspec.msgpack.encode(self), digest_size=16).hexdigest()


def waits_for_its_round(model: Model, update: UpdateRule | None, workers: int) -> bool:
    """Does every gradient of a round stay where it is until the round closes, so that they can be summed in order?

    And does the round have those of all workers, so that nobody's luck decides whose?
    """
    everyone = model.name in ("bsp", "esync") or (isinstance(model, PSP) and model.c >= workers)
    return everyone and model.b == 1 and update in (None, "round")
