"""Long rows of numbers, worked on in pieces that stay in the cache: added, scaled, and looked at for NaN and Inf.

numpy and torch round additions and divisions alike. An addition costs numpy less, so it adds as long as torch has one
thread; with more, torch's threads share the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.params.crew import Crew

Row = NDArray[np.floating]
PIECE = 2**20  # bytes: larger falls out of the cache, smaller does not give the memory time to stream


class Rows:
    """How rows of this length are cut, and working copies of that length, which are used again and again."""

    def __init__(self, size: int, dtype: np.dtype[np.floating], crew: Crew | None = None) -> None:
        self.size, self.dtype = size, dtype
        self.crew = crew or Crew()
        self.pieces = self.crew.cut(size, PIECE // dtype.itemsize)
        self.made = 0
        self._free: list[Row] = []

    def take(self) -> Row:
        """A working copy, with anything in it."""
        if self._free:
            return self._free.pop()
        self.made += 1
        return np.zeros(self.size, self.dtype)

    def give_back(self, row: Row) -> None:
        self._free.append(row)

    def sum(self, rows: Sequence[Row], out: Row) -> slice | None:
        """Sum the rows, in their order; the first may be `out`. Stops at a piece that is not finite and returns it."""

        def bad(piece: slice) -> bool:
            summed = self.sum_piece(rows, piece, out[piece])
            if summed is not None and len(rows) == 1:
                np.copyto(out[piece], summed)
            return summed is None

        return self._any(bad, len(rows))

    def sum_piece(self, rows: Sequence[Row], piece: slice, out: Row) -> Row | None:
        """The sum of one piece of the rows, in `out`; of one row, the piece itself. None if it is not finite."""
        add = np.add if torch.get_num_threads() == 1 else _threaded_add
        so_far = rows[0][piece]
        with np.errstate(all="ignore"):
            for row in rows[1:]:
                add(so_far, row[piece], out)
                so_far = out
            return so_far if _is_finite(so_far) else None

    def any_bad(self, row: Row) -> slice | None:
        """A piece that is not finite, if there is one."""
        return self._any(lambda piece: not is_finite(row[piece]))

    def _any(self, bad: Callable[[slice], bool], rows: int = 1) -> slice | None:
        """A piece of which this is so. Once there is one, not all need be looked at."""

        def look(_: int, pieces: Iterable[slice]) -> slice | None:
            return next((piece for piece in pieces if bad(piece)), None)

        return next((found for found in self.crew.share(self.pieces, look, rows) if found is not None), None)


def is_finite(row: Row) -> bool:
    """Whether all numbers are. The sum of their squares says so; only if that is not finite is each looked at."""
    with np.errstate(all="ignore"):
        return _is_finite(row)


def _is_finite(row: Row) -> bool:
    return isfinite(row.dot(row)) or bool(np.isfinite(row).all())


class Scale(NamedTuple):
    """A multiplication or a division, to be done with rows."""

    operation: np.ufunc
    number: float

    @staticmethod
    def of_mean(gradients: int, *, exact: bool) -> Scale:
        """Multiplying is faster than dividing, and gives the same for powers of two; else `exact` must divide."""
        if exact and gradients & (gradients - 1):
            return Scale(np.divide, gradients)
        return Scale(np.multiply, 1 / gradients)

    def __call__(self, row: Row, out: Row) -> None:
        self.operation(row, self.number, out)


def _threaded_add(left: Row, right: Row, out: Row) -> None:
    torch.add(torch.from_numpy(left), torch.from_numpy(right), out=torch.from_numpy(out))
