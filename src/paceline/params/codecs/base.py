"""What a codec is: a frozen value that says how many bytes a slice takes, and writes and reads them.

What an encoder does not send it keeps, and adds it to the next gradient (error feedback). So nothing is lost: what was
decoded so far and what is still held back add up to the gradients.
"""

from __future__ import annotations

import sys
from math import isfinite, sqrt
from typing import ClassVar

import numpy as np
import torch
from msgspec import Struct
from msgspec.structs import fields
from torch import Tensor

from paceline.params.rows import Row
from paceline.params.space import ParameterError


class CodecError(ParameterError):
    """A codec that does not exist or cannot be as it was asked for, or bytes that it has not written."""


class Encoder:
    """What one worker keeps of one slice from push to push; as a rule nothing."""

    def encode(self, gradient: Tensor, out: Tensor) -> None:
        """Write a gradient to these bytes, which stay as they are until the next one.

        A gradient with NaN or Inf becomes bytes that decode to such, so that the server refuses it; what is kept is not
        touched.
        """
        raise NotImplementedError

    def take_back(self) -> None:
        """What was last encoded has not been applied: it goes back to what is held back."""

    def held_back(self) -> float:
        """The norm of what has not been sent yet."""
        return 0.0


class Codec(Struct, frozen=True):
    """The base of every codec. Its fields are its parameters, all of them numbers."""

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name in self.parameters():
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
                raise CodecError(f"{self.name}: {name}={value!r} is not allowed; it is a number")
        complaint = self.check()
        if complaint:
            raise CodecError(f"{self.name}: {complaint}")

    def check(self) -> str | None:
        """What is wrong with these parameters, if anything."""
        return None

    def nbytes(self, size: int, itemsize: int) -> int:
        """How many bytes so many elements take, each of which has `itemsize` as it is."""
        raise NotImplementedError

    def encoder(self, size: int, dtype: torch.dtype) -> Encoder:
        """A new one, for a slice of so many elements."""
        raise NotImplementedError

    def decode(self, encoded: Tensor, row: Tensor) -> None:
        """Write to `row` what these bytes stand for. CodecError if no encoder can have written them."""
        raise NotImplementedError

    @classmethod
    def parameters(cls) -> dict[str, float]:
        """Their names and what they are if not given, in the order in which an expression may leave out the names."""
        return {field.name: field.default for field in fields(cls)}

    @classmethod
    def signature(cls) -> str:
        """How to write it, such as `top_k(share=0.01, momentum=0.0)`."""
        return _call(cls.name, cls.parameters())

    def __str__(self) -> str:
        known = self.parameters()
        return _call(self.name, {name: value for name in known if (value := getattr(self, name)) != known[name]})


def _call(name: str, values: dict[str, float]) -> str:
    given = ", ".join(f"{key}={value!r}" for key, value in values.items())
    return f"{name}({given})" if given else name


def norm(row: Row) -> float:
    """|row|, or the largest number if that is beyond it."""
    with np.errstate(all="ignore"):
        squares = float(row.dot(row))
    return sqrt(squares) if isfinite(squares) else sys.float_info.max
