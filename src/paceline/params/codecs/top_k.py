"""The largest numbers alone, and where they belong. Lin et al. 2018, "Deep Gradient Compression".

What is not sent is held back until it is among the largest. With `momentum` that is corrected for: a worker keeps a
velocity, and holds that back instead of the gradient, so that what arrives late arrives as momentum would have made it.
Where a number is sent, what is held back and the velocity begin at 0 again.

Places are in order. They are written in 16 bits within a block of 65 536 numbers, with how many are in each block.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.params.codecs.base import Codec, CodecError, Encoder, norm
from paceline.params.rows import Row, is_finite

BLOCK = 1 << 16
SAMPLE = 1 << 16  # how many numbers are looked at to guess which are among the largest
MARGIN = 1.3  # and by how much more than wanted are taken for that, because it is a guess

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


class TopK(Codec, frozen=True):
    """`share` of the numbers are sent. With `momentum`, that of the optimizer has to be 0."""

    share: float = 0.01
    momentum: float = 0.0

    name = "top_k"

    def check(self) -> str | None:
        if not 0 < self.share <= 1:
            return f"share={self.share!r} is not allowed; share is a number above 0, up to 1"
        if not 0 <= self.momentum < 1:
            return f"momentum={self.momentum!r} is not allowed; momentum is a number from 0, below 1"
        return None

    def count(self, size: int) -> int:
        """How many of so many numbers are sent."""
        return max(1, round(self.share * size))

    def nbytes(self, size: int, itemsize: int) -> int:
        return self.count(size) * (itemsize + 2) + 4 * _blocks(size)

    def encoder(self, size: int, dtype: torch.dtype) -> Encoder:
        return TopKEncoder(self, size, dtype)

    def decode(self, encoded: Tensor, row: Tensor) -> None:
        to: Row = row.numpy()
        values, counts, low = _parts(encoded.numpy(), self.count(to.size), to)
        places = _places(counts, low, to.size)
        to.fill(0)
        to[places] = values


class TopKEncoder(Encoder):
    def __init__(self, codec: TopK, size: int, dtype: torch.dtype) -> None:
        self._codec = codec
        self._count = codec.count(size)
        self._residual: Row = torch.zeros(size, dtype=dtype).numpy()
        self._velocity: Row | None = np.zeros_like(self._residual) if codec.momentum else None
        self._sizes: Row = np.zeros_like(self._residual)
        self._sent: tuple[Places, Row, Row | None] | None = None  # places, values, and velocities before

    def encode(self, gradient: Tensor, out: Tensor) -> None:
        given: Row = gradient.numpy()
        values, counts, low = _parts(out.numpy(), self._count, self._residual)
        self._sent = None
        if is_finite(given) and self._add(given):
            np.abs(self._residual, out=self._sizes)
            places = largest(self._sizes, self._count)
            values[:] = self._residual[places]
            self._clear(places, values)
        else:
            places = np.arange(self._count)
            values.fill(np.nan)
        counts[:] = np.bincount(places // BLOCK, minlength=counts.size)
        low[:] = places % BLOCK

    def _add(self, gradient: Row) -> bool:
        """Add the gradient to what is held back. What is beyond the numbers that there are is let go: False."""
        with np.errstate(all="ignore"):
            if self._velocity is not None:
                self._velocity *= self._codec.momentum
                self._velocity += gradient
                gradient = self._velocity
            self._residual += gradient
        if is_finite(self._residual):
            return True
        beyond = ~np.isfinite(self._residual)
        self._residual[beyond] = 0
        if self._velocity is not None:
            self._velocity[beyond] = 0
        return False

    def _clear(self, places: Places, values: Row) -> None:
        """These are sent. What they were is remembered, should they have to be taken back."""
        before = None if self._velocity is None else self._velocity[places]
        self._sent = places, values.copy(), before
        self._residual[places] = 0
        if self._velocity is not None:
            self._velocity[places] = 0

    def take_back(self) -> None:
        if self._sent is not None:
            places, values, velocity = self._sent
            self._residual[places] += values
            if self._velocity is not None and velocity is not None:
                self._velocity[places] += velocity
            self._sent = None

    def held_back(self) -> float:
        return norm(self._residual)


def largest(sizes: Row, count: int) -> Places:
    """The places of the `count` largest, in order. A sample says which can be left out without a closer look."""
    sample = sizes[:: max(1, sizes.size // SAMPLE)]
    kept = int(MARGIN * count * sample.size / sizes.size) + 1
    if kept < sample.size:
        among = np.flatnonzero(sizes >= np.partition(sample, sample.size - kept)[sample.size - kept])
    if kept >= sample.size or among.size < count:
        among = np.arange(sizes.size)
    chosen = among[np.argpartition(sizes[among], among.size - count)[among.size - count :]]
    chosen.sort()
    return chosen


def _places(counts: NDArray[np.uint32], low: NDArray[np.uint16], size: int) -> Places:
    """Where the numbers belong. From whoever wrote this anything may come, so all of it is copied and then checked."""
    in_block, last = counts.astype(np.int64), low.astype(np.int64)
    if int(in_block.sum()) != last.size:
        raise CodecError(f"top_k: {last.size} numbers are said to be {int(in_block.sum())}")
    places = np.repeat(np.arange(in_block.size) * BLOCK, in_block) + last
    if places[-1] >= size or not (np.diff(places) > 0).all():
        raise CodecError(f"top_k: places of numbers are each once, in order and below {size}")
    return places


def _parts(encoded: Bytes, count: int, like: Row) -> tuple[Row, NDArray[np.uint32], NDArray[np.uint16]]:
    """The numbers, how many there are in each block, and their places within."""
    values, counts = count * like.itemsize, 4 * _blocks(like.size)
    return (
        encoded[:values].view(like.dtype),
        encoded[values : values + counts].view(np.uint32),
        encoded[values + counts :].view(np.uint16),
    )


def _blocks(size: int) -> int:
    return -(-size // BLOCK)
