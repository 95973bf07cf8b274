"""One bit for each number: its sign. Seide et al. 2014, "1-Bit Stochastic Gradient Descent".

A block of numbers is sent as its signs and two means, of those that are not negative and of those that are: the first,
and what leads from there to the second. What a number and its mean differ by is held back and added to the next
gradient. Blocks are small, as the paper's columns are, so that numbers share a mean with their neighbours only, however
the parameters are cut into slices.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.params.codecs.base import Codec, Encoder, norm
from paceline.params.crew import cut
from paceline.params.rows import Row, is_finite

BLOCK = 512  # numbers that share two means; a whole number of bytes of signs
PIECE = 128 * BLOCK  # numbers that are worked on at a time, so that they stay in the cache

Bytes = NDArray[np.uint8]


class OneBit(Codec, frozen=True):
    """Signs, and two means for each block."""

    name = "one_bit"

    def nbytes(self, size: int, itemsize: int) -> int:
        return 2 * itemsize * -(-size // BLOCK) + -(-size // 8)

    def encoder(self, size: int, dtype: torch.dtype) -> Encoder:
        return OneBitEncoder(self, size, dtype)

    def decode(self, encoded: Tensor, row: Tensor) -> None:
        with np.errstate(all="ignore"):
            for values, means, signs in _pieces(row.numpy(), encoded.numpy()):
                np.copyto(values, np.unpackbits(signs, count=values.size).reshape(values.shape))
                _expand(values, means)


class OneBitEncoder(Encoder):
    def __init__(self, codec: OneBit, size: int, dtype: torch.dtype) -> None:
        self._codec = codec
        self._residual: Row = torch.zeros(size, dtype=dtype).numpy()
        self._sent: Tensor | None = None

    def encode(self, gradient: Tensor, out: Tensor) -> None:
        given: Row = gradient.numpy()
        self._sent = None
        if not is_finite(given):
            for _, means, _ in _pieces(self._residual, out.numpy()):
                means.fill(np.nan)
            return
        finite = True
        with np.errstate(all="ignore"):
            np.add(self._residual, given, out=self._residual)
            for values, means, signs in _pieces(self._residual, out.numpy()):
                _encode(values, means, signs)
                good = np.isfinite(means).all(axis=1)
                if not good.all():  # the sum is beyond what there are numbers for: let it go with this gradient
                    values[~good] = 0
                    finite = False
        self._sent = out if finite else None

    def take_back(self) -> None:
        if self._sent is not None:
            carried = torch.zeros(self._residual.size, dtype=torch.from_numpy(self._residual).dtype)
            self._codec.decode(self._sent, carried)
            self._residual += carried.numpy()
            self._sent = None

    def held_back(self) -> float:
        return norm(self._residual)


def _encode(values: Row, means: Row, signs: Bytes) -> None:
    """Write signs and means of some blocks, one in each line of `values`, and leave there what is held back."""
    width = values.shape[1]
    ones = np.ones(width, values.dtype)
    negative = np.signbit(values)
    signs[:] = np.packbits(negative)
    mine = negative.astype(values.dtype)
    count, below = mine @ ones, (mine * values) @ ones
    above = (values @ ones - below) / np.maximum(width - count, 1)
    means[:, 0] = above
    means[:, 1] = below / np.maximum(count, 1) - above
    _expand(mine, means)
    values -= mine


def _expand(mine: Row, means: Row) -> None:
    """Where there is a 0 put the block's upper mean, where there is a 1 the lower. Both sides round alike."""
    mine *= means[:, 1:]
    mine += means[:, :1]


def _pieces(row: Row, encoded: Bytes) -> Iterator[tuple[Row, Row, Bytes]]:
    """The row as blocks, some at a time, with their means and signs. The last block may be short, and comes alone."""
    size = row.size
    ahead = 2 * row.itemsize * -(-size // BLOCK)
    means = encoded[:ahead].view(row.dtype).reshape(-1, 2)
    signs = encoded[ahead:]
    whole = size - size % BLOCK
    for piece in cut(whole, PIECE):
        blocks = slice(piece.start // BLOCK, piece.stop // BLOCK)
        yield row[piece].reshape(-1, BLOCK), means[blocks], signs[piece.start // 8 : piece.stop // 8]
    if whole < size:
        yield row[whole:].reshape(1, -1), means[-1:], signs[whole // 8 :]
