"""Half the bytes: numbers rounded to 16 bits.

`fp16` has 11 binary digits, and nothing beyond ±65504 or nearer to 0 than 3e-8. `bf16` has 8, and float32's range. A
finite number that is too large becomes the largest there is: as Inf it would be refused.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from paceline.params.codecs.base import Codec, Encoder


class Rounding(Encoder):
    """Keeps nothing: what is rounded off is small beside what is sent."""

    def __init__(self, target: torch.dtype) -> None:
        self._target = target

    def encode(self, gradient: Tensor, out: Tensor) -> None:
        rounded, most = out.view(self._target), torch.finfo(self._target).max
        least, largest = torch.aminmax(gradient)
        if bool(least >= -most) and bool(largest <= most):
            rounded.copy_(gradient)
        else:  # also where there is NaN, which is left as it is
            rounded.copy_(torch.where(gradient.isinf(), gradient, gradient.clamp(-most, most)))


class Rounded(Codec, frozen=True):
    """Numbers of 16 bits."""

    target: ClassVar[torch.dtype]

    def nbytes(self, size: int, itemsize: int) -> int:
        return size * self.target.itemsize

    def encoder(self, size: int, dtype: torch.dtype) -> Encoder:
        return Rounding(self.target)

    def decode(self, encoded: Tensor, row: Tensor) -> None:
        row.copy_(encoded.view(self.target))


class FP16(Rounded, frozen=True):
    """IEEE half precision."""

    name = "fp16"
    target = torch.float16


class BF16(Rounded, frozen=True):
    """float32 without the last 16 bits."""

    name = "bf16"
    target = torch.bfloat16
