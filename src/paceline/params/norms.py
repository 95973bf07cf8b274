"""Norms of whole tensors, also of those that are cut: each server squares and sums its part, and the parts are added.

Everything is summed in float64 and in a fixed order, so that the same parts give the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

import numpy as np
from msgspec import Struct
from torch import Tensor

BLOCK = 65_536  # elements that are made float64 at a time


class Norms(Struct, frozen=True):
    """For each tensor that is cut, by name: the sum of the squares of its values and of its gradient."""

    squares: dict[str, tuple[float, float]] = {}

    @staticmethod
    def total(parts: Iterable[Norms]) -> Norms:
        """The norms of all parts together. Give them in the order of the slices, everywhere the same."""
        squares: dict[str, tuple[float, float]] = {}
        for part in parts:
            for name, (values, gradient) in part.squares.items():
                before = squares.get(name, (0.0, 0.0))
                squares[name] = (before[0] + values, before[1] + gradient)
        return Norms(squares)


def square(elements: Tensor) -> float:
    """The sum of the squares."""
    row = elements.numpy()
    total = 0.0
    for start in range(0, row.size, BLOCK):
        block = row[start : start + BLOCK].astype(np.float64)
        total += float(np.add.reduce(block * block))
    return total


def local_rate(squares: tuple[float, float], *, trust: float, weight_decay: float, eps: float) -> float:
    """What LARS multiplies a tensor's rate with; 1 where there is nothing to compare, as in a tensor of zeros."""
    values, gradient = sqrt(squares[0]), sqrt(squares[1])
    if not values or not gradient:
        return 1.0
    return trust * values / (gradient + weight_decay * values + eps)
