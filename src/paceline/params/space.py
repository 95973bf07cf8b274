"""The flat parameter space: every tensor of a model, one after another, as one long row of elements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import prod

from msgspec import Struct


class ParameterError(ValueError):
    """Parameters, or servers for them, that cannot be."""


class Tensor(Struct, frozen=True):
    """One tensor and its place in the row."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.size


class Space:
    """The tensors of a model, in the order in which they are given."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        self.tensors: list[Tensor] = []
        start = 0
        for name, shape in shapes.items():
            if any(type(length) is not int or length < 0 for length in shape):
                raise ParameterError(
                    f"parameter {name!r} has the shape {tuple(shape)}; lengths are whole numbers from 0"
                )
            self.tensors.append(Tensor(name, tuple(shape), start))
            start = self.tensors[-1].stop
        self.size = start
        if not self.size:
            raise ParameterError("there is nothing to train: no parameter has an element")
        self._filled = [tensor for tensor in self.tensors if tensor.size]
        self._starts = [tensor.start for tensor in self._filled]

    def at(self, element: int) -> Tensor:
        """The tensor that an element of the row belongs to."""
        if not 0 <= element < self.size:
            raise ParameterError(f"there is no element {element}; there are 0 to {self.size - 1}")
        return self._filled[bisect_right(self._starts, element) - 1]

    def fingerprint(self) -> str:
        """The same for two models only if they have the same names and shapes in the same order."""
        text = "\n".join(f"{tensor.name!r} {tensor.shape}" for tensor in self.tensors)
        return blake2b(text.encode(), digest_size=16).hexdigest()
