"""A worker's side of the model: the parameters as they came, and the gradient that goes out from here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from paceline import params
from paceline.nodes.aside import Aside
from paceline.nodes.errors import WrongModel, WrongRequest
from paceline.nodes.memory import Tensors, tensor_over
from paceline.nodes.messages import Place
from paceline.params import Space
from paceline.params.norms import square
from paceline.wire import FrameError, Incoming, Segment

Values = Tensor | Mapping[str, Tensor]  # flat, or by the parameters' names


class Replica:
    """`gradients` is flat, in memory that the wire sends from. `parts` has the parameters of each shard.

    With `in_place` a part is the server's own memory where the wire can do that, which saves a copy. It is to be read
    only, until it is given back. Otherwise the parts are those of one flat tensor of our own. `aside` has what has come
    and may not be put there yet.
    """

    def __init__(self, space: Space, dtype: torch.dtype, *, in_place: bool) -> None:
        self.space = space
        self.dtype = dtype
        self.segment = Segment(space.size * dtype.itemsize)
        self.gradients: Tensor = tensor_over(self.segment.view, dtype)
        self.parts: list[Tensor] = []
        self.aside = Aside([], dtype)
        self._flat = torch.zeros(space.size, dtype=dtype)
        self._in_place = in_place
        self._lent: dict[int, Incoming] = {}  # by shard, what is read in place
        self._tensors = Tensors(dtype)
        self._places: Sequence[Place] = ()
        self._own: list[Tensor] = []  # by shard, as are these two
        self._views: list[memoryview] = []
        self._cut: list[list[params.Tensor]] = []  # the tensors that it has only a part of

    def arrange(self, places: Sequence[Place]) -> None:
        """These are the shards."""
        self._places = places
        self._own = [self._flat[place.start : place.stop] for place in places]
        self._views = [own.numpy().view(np.uint8).data for own in self._own]
        self._cut = [_cut(place, self.space) for place in places]
        self.parts = list(self._own)
        self.aside = Aside([view.nbytes for view in self._views], self.dtype)

    @property
    def parameters(self) -> Tensor:
        """All of them, flat."""
        if not self._in_place:
            return self._flat
        if len(self.parts) != 1:
            raise WrongRequest(f"{len(self.parts)} shards that are read in place are not one tensor; read the parts")
        return self.parts[0]

    # What comes and goes.

    def landing(self, shard: int, size: int) -> memoryview:
        """Where parameters go that come over a socket."""
        if not 0 <= shard < len(self._views) or size != self._views[shard].nbytes:
            raise FrameError("", f"{size} bytes came for shard {shard}; there are {len(self._views)}, of other sizes")
        return self._views[shard]

    def take(self, shard: int, incoming: Incoming, *, lasting: bool = False) -> None:
        """The parameters of a shard have come: to where they should land, or in the server's own memory.

        Where they must outlast being given back, they are copied.
        """
        self.give_back([shard])
        self.aside.forget(shard)
        own, payload = self._own[shard], incoming.payload
        self.parts[shard] = own
        if payload is not None and payload is not self._views[shard]:
            self.landing(shard, payload.nbytes)
            there = self._tensors.over(payload)
            if self._in_place and not lasting:
                self.parts[shard] = there
                self._lent[shard] = incoming
                return
            own.copy_(there)
        incoming.release()

    def set_aside(self, shard: int, incoming: Incoming, version: int) -> None:
        """The parameters of a shard have come and are newer than all before, but may not be put in place yet."""
        assert incoming.payload is not None
        self.landing(shard, incoming.payload.nbytes)
        self.aside.keep(shard, incoming.payload, version)
        incoming.release()

    def put_in_place(self, shard: int) -> int | None:
        """What was set aside of a shard may be used now. Returns its version, if there is such a thing."""
        version = self.aside.put(shard, self._own[shard])
        if version is not None:
            self.give_back([shard])
            self.parts[shard] = self._own[shard]
        return version

    def give_back(self, shards: Iterable[int]) -> None:
        """What was read in place is not read any more."""
        if self._lent:
            for shard in shards:
                if shard in self._lent:
                    self._lent.pop(shard).release()

    def outgoing(self, place: Place) -> memoryview:
        """The gradient of a shard."""
        size = self.dtype.itemsize
        return self.segment.part(place.start * size, place.stop * size)

    def write(self, values: Values) -> None:
        """Make these the gradient, if they are of this model."""
        if isinstance(values, Tensor):
            if values.shape != self.gradients.shape or values.dtype != self.dtype:
                raise WrongModel(
                    f"values of shape {tuple(values.shape)} and type {values.dtype}; "
                    f"the model has {self.space.size} elements of type {self.dtype}"
                )
            self.gradients.copy_(values)
            return
        for tensor in self.space.tensors:
            value = values.get(tensor.name)
            if value is None:
                raise WrongModel(f"parameter {tensor.name!r} is missing")
            if tuple(value.shape) != tensor.shape or value.dtype != self.dtype:
                raise WrongModel(
                    f"parameter {tensor.name!r} has the shape {tuple(value.shape)} and type {value.dtype}; "
                    f"it is {tensor.shape} of type {self.dtype}"
                )
        unknown = set(values) - {tensor.name for tensor in self.space.tensors}
        if unknown:
            raise WrongModel(f"parameter {min(unknown)!r} is not in the model")
        for tensor in self.space.tensors:
            self.gradients[tensor.start : tensor.stop].copy_(values[tensor.name].detach().reshape(-1))

    # What is known of it.

    def norms(self, shard: int) -> dict[str, tuple[float, float]]:
        """|w|² and |g|² of the tensors that this shard has only a part of."""
        return {
            tensor.name: (
                sum(square(part) for part in self._values(tensor)),
                square(self.gradients[tensor.start : tensor.stop]),
            )
            for tensor in self._cut[shard]
        }

    def significance(self) -> float:
        """|g| / |w|."""
        weight = sqrt(sum(square(part) for part in self.parts))
        return sqrt(square(self.gradients)) / weight if weight else 0.0

    def what_is_not_finite(self) -> str | None:
        """The first parameter whose gradient has NaN or Inf in it."""
        for tensor in self.space.tensors:
            if not torch.isfinite(self.gradients[tensor.start : tensor.stop]).all():
                return tensor.name
        return None

    def _values(self, tensor: params.Tensor) -> Iterator[Tensor]:
        """A tensor's parameters, flat, in as many parts as there are."""
        for place, part in zip(self._places, self.parts, strict=True):
            start, stop = max(tensor.start, place.start), min(tensor.stop, place.stop)
            if start < stop:
                yield part[start - place.start : stop - place.start]


def _cut(place: Place, space: Space) -> list[params.Tensor]:
    ends = (space.at(place.start), space.at(place.stop - 1))
    cut = {tensor.name: tensor for tensor in ends if tensor.start < place.start or tensor.stop > place.stop}
    return list(cut.values())
