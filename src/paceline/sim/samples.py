"""The batches of virtual workers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from paceline.sim.gradients import Batch
from paceline.training.parts import ORDER, Indices, check_enough, even_part, stream, uneven_parts


class Samples:
    """One worker's batches, epoch by epoch; `epoch` says in which order its samples come in one."""

    def __init__(self, x: Tensor, y: Tensor, batch: int, epoch: Callable[[int], Indices]) -> None:
        self._x, self._y, self._batch, self._epoch = x, y, batch, epoch
        self._epochs = 0
        self._order: Indices = np.empty(0, np.int64)
        self._at = 0

    def next(self) -> Batch:
        if self._at + self._batch > len(self._order):
            self._order, self._at = self._epoch(self._epochs), 0
            self._epochs += 1
        chosen = torch.from_numpy(self._order[self._at : self._at + self._batch]).to(self._x.device)
        self._at += self._batch
        return self._x[chosen], self._y[chosen]


def shared(data: Batch, workers: int, batch: int, *, alpha: float | None, seed: int) -> list[Samples]:
    """Everyone's part, as `paceline.shard` cuts it: an even one, anew in each epoch, or a fixed one of few classes."""
    x, y = data
    check_enough(len(y), workers, batch)
    if alpha is None:
        whole = partial(even_part, len(y), world_size=workers, seed=seed, shuffle=True)
        return [Samples(x, y, batch, _even(whole, rank)) for rank in range(workers)]
    parts = uneven_parts(y.cpu().numpy(), world_size=workers, alpha=alpha, seed=seed, least=batch)
    return [Samples(x, y, batch, _uneven(part, seed, rank)) for rank, part in enumerate(parts)]


def _even(part: Callable[..., Indices], rank: int) -> Callable[[int], Indices]:
    return lambda epoch: part(rank=rank, epoch=epoch)


def _uneven(part: Indices, seed: int, rank: int) -> Callable[[int], Indices]:
    return lambda epoch: stream(seed, ORDER, epoch=epoch, rank=rank).permutation(part)
