"""Which samples are whose: pure functions of the seed, so that every worker finds the same answer on its own.

They draw from numpy's `RandomState`, whose streams are the same in every version of numpy: workers on machines with
different ones still agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]

LEAST_ALPHA, MOST_ALPHA = 1e-6, 1e6
EVEN, UNEVEN, ORDER = 1, 2, 3  # what a stream is for; keeps them apart


class ShardError(ValueError):
    """A loader that cannot be shared as it was asked for."""


def stream(seed: int, purpose: int, *, epoch: int = 0, rank: int = 0) -> np.random.RandomState:
    """Random numbers of their own for each seed, purpose, epoch and worker."""
    words = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, purpose, epoch & 0xFFFFFFFF, rank]
    return np.random.RandomState(np.array(words, dtype=np.uint32))


def even_part(size: int, *, rank: int, world_size: int, seed: int, epoch: int, shuffle: bool) -> Indices:
    """One of `world_size` parts of equal length of the numbers below `size`, for this epoch.

    What is left over when they are cut stays unused in this epoch. With `shuffle` that is a random rest. Without, a
    part is every `world_size`-th number, in order, and what is left out moves on from epoch to epoch, so that every
    number is left out equally often.
    """
    each, over = divmod(size, world_size)
    if shuffle:
        return stream(seed, EVEN, epoch=epoch).permutation(size)[rank * each : (rank + 1) * each]
    left_out = (epoch * over + np.arange(over)) % max(size, 1)
    return np.delete(np.arange(size), left_out)[rank::world_size]


def uneven_parts(labels: ArrayLike, *, world_size: int, alpha: float, seed: int, least: int = 1) -> list[Indices]:
    """Everyone's part of all numbers below `len(labels)`: each class is cut by proportions drawn from Dirichlet(alpha).

    The smaller `alpha`, the more a worker has of few classes; a large one gives everyone the same mixture. Who would
    have less than `least` samples gets some of whoever has most.
    """
    classes = class_numbers(labels)
    check_enough(len(classes), world_size, least)
    random = stream(seed, UNEVEN)
    parts: list[list[Indices]] = [[] for _ in range(world_size)]
    for members in _by_class(classes):
        shares = proportions(random, world_size, alpha)
        cuts = np.floor(np.cumsum(shares)[:-1] * len(members) + 0.5).astype(np.int64)
        for part, mine in zip(parts, np.split(random.permutation(members), cuts), strict=True):
            part.append(mine)
    mixed = [random.permutation(np.concatenate(part)) for part in parts]
    return [np.sort(part) for part in _with_at_least(least, mixed)]


def check_enough(size: int, world_size: int, least: int) -> None:
    """Are there so many samples that everyone can have `least`?"""
    if size < world_size * least:
        raise ShardError(f"{size} samples are too few for {world_size} workers: each needs at least {least}")


def proportions(random: np.random.RandomState, count: int, alpha: float) -> NDArray[np.float64]:
    """Shares that add up to 1, from the symmetric Dirichlet distribution.

    They are gamma draws over their sum, taken as logarithms: for a small alpha the draws themselves may all be 0.
    """
    if not (isinstance(alpha, int | float) and LEAST_ALPHA <= alpha <= MOST_ALPHA):
        raise ShardError(f"alpha is {alpha!r}; it is a number from {LEAST_ALPHA:g} to {MOST_ALPHA:g}")
    uniform = 1.0 - random.random_sample(count)  # above 0
    logs = np.log(random.standard_gamma(alpha + 1.0, count)) + np.log(uniform) / alpha
    shares: NDArray[np.float64] = np.exp(logs - logs.max())
    shares /= shares.sum()
    return shares


def class_numbers(labels: ArrayLike) -> Indices:
    """A number for the class of each sample: labels may be whole numbers, truth values or names."""
    array = np.asarray(labels)
    if array.ndim != 1 or array.dtype.kind not in "iubUS":
        raise ShardError(
            f"labels of shape {array.shape} and type {array.dtype} name no classes; "
            f"give one whole number or name for each sample, as labels=..."
        )
    return np.unique(array, return_inverse=True)[1].astype(np.int64)


def _by_class(classes: Indices) -> list[Indices]:
    """The samples of each class, in order."""
    order = np.argsort(classes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(classes))[:-1])


def _with_at_least(least: int, parts: list[Indices]) -> list[Indices]:
    """The same with nobody below `least`; there must be enough for everyone."""
    sizes = np.array([len(part) for part in parts])
    while sizes.min() < least:
        poorest, richest = int(sizes.argmin()), int(sizes.argmax())
        moved = min(least - sizes[poorest], sizes[richest] - least)
        parts[poorest] = np.concatenate([parts[poorest], parts[richest][-moved:]])
        parts[richest] = parts[richest][:-moved]
        sizes[poorest] += moved
        sizes[richest] -= moved
    return parts
