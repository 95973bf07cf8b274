"""A worker's gradients on their way out, where the job has a codec: encoded, in memory that the wire sends from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot

import torch
from torch import Tensor

from paceline.nodes.errors import WrongRequest
from paceline.nodes.memory import tensor_over
from paceline.nodes.messages import Place
from paceline.params import Optimizer
from paceline.params.codecs import Codec
from paceline.params.codecs.top_k import TopK
from paceline.sync import parse
from paceline.sync.models.base import UpdateRule
from paceline.wire import Segment

ALIGNED = 64  # bytes: where the part of a shard may begin


class Encoding:
    """For each shard an encoder, and the bytes of its last gradient, which stay until that has been taken."""

    def __init__(self, codec: Codec, places: Sequence[Place], gradients: Tensor) -> None:
        dtype = gradients.dtype
        sizes = [codec.nbytes(place.size, dtype.itemsize) for place in places]
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + -(-size // ALIGNED) * ALIGNED)
        self.segment = Segment(ends[-1])
        self._views = [self.segment.view[start : start + size] for start, size in zip(ends, sizes, strict=False)]
        self._bytes = [tensor_over(view, torch.uint8) for view in self._views]
        self._parts = [gradients[place.start : place.stop] for place in places]
        self._encoders = [codec.encoder(place.size, dtype) for place in places]
        self._iterations = [-1] * len(places)  # whose gradient was last encoded
        self._under_way: set[int] = set()

    def free(self, shard: int) -> bool:
        """May the next gradient be encoded?"""
        return shard not in self._under_way

    def encode(self, shard: int, iteration: int) -> float:
        """Encode the gradient as it is now. Returns the norm of what is held back."""
        self._iterations[shard] = iteration
        self._encoders[shard].encode(self._parts[shard], self._bytes[shard])
        return self._encoders[shard].held_back()

    def send(self, shard: int) -> memoryview:
        """What to send. It is under way from now on, until it has been `taken`."""
        self._under_way.add(shard)
        return self._views[shard]

    def taken(self, shard: int) -> None:
        self._under_way.discard(shard)

    def take_back(self, shard: int, iteration: int) -> None:
        """The gradient of this iteration has not been applied. If another has been encoded since, it is lost."""
        if self._iterations[shard] == iteration:
            self._encoders[shard].take_back()

    def held_back(self) -> list[float]:
        """For each shard the norm of what has not been sent, or has come back."""
        return [encoder.held_back() for encoder in self._encoders]

    def close(self) -> None:
        self.segment.close()


def add_norms(total: dict[int, float], more: Mapping[int, float]) -> None:
    """To the norms of parts, by worker, those of other parts."""
    for worker, norm in more.items():
        total[worker] = hypot(total.get(worker, 0.0), norm)


def check_lars(codec: Codec | None, optimizer: Optimizer, sync: str, update: UpdateRule | None) -> None:
    """LARS needs norms of whole tensors. Servers know those of what they decoded only when they close a round."""
    if codec is not None and optimizer.name == "lars" and (update or parse(sync).update) == "immediate":
        raise WrongRequest(
            f"lars with {codec} needs a model that sums rounds, such as bsp, or update='round': under {sync} a worker "
            "tells the norms of its gradient, which are not those of what arrives"
        )


def check_momentum(codec: Codec | None, optimizer: Optimizer) -> None:
    """Momentum once: on the workers or on the servers."""
    if not isinstance(codec, TopK) or not codec.momentum or optimizer.own:
        return
    for group in (None, *optimizer.groups):
        momentum = optimizer.resolved(group).get("momentum")
        if momentum:
            raise WrongRequest(
                f"{codec} has momentum on each worker, and {optimizer.name} has {momentum} on the servers, which would "
                "act on top of it; set one of them to 0"
            )
