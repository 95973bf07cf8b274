"""Blocks of parameters that have come before they may be put in place.

Where workers start without waiting for all blocks, one may come while the worker computes with what there is. It then
waits in a row of its own. A block that is coming in never lands on one that is complete, so what is put in place later
is one version and no mix. That is one more copy of the model in memory as a rule, two at most, and none before a block
has to be set aside for the first time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.nodes.memory import tensor_over


class Row:
    """Memory for one block."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self.view = memoryview(bytearray(size))
        self.values = tensor_over(self.view, dtype)
        self.version = -1


class Aside:
    """For each shard the newest block that is not in place yet, if there is one. `sizes` are in bytes."""

    def __init__(self, sizes: list[int], dtype: torch.dtype) -> None:
        self._sizes = sizes
        self._dtype = dtype
        self._spare: list[list[Row]] = [[] for _ in sizes]
        self._coming: list[Row | None] = [None] * len(sizes)  # where something lands now
        self._complete: list[Row | None] = [None] * len(sizes)

    def landing(self, shard: int) -> memoryview:
        """Where the next block of a shard may land."""
        return self._row(shard).view

    def landed(self, shard: int, payload: memoryview | None) -> bool:
        """Is that what was given as landing?"""
        row = self._coming[shard]
        return row is not None and payload is row.view

    def keep(self, shard: int, payload: memoryview, version: int) -> None:
        """A block is complete, and newer than what is kept of its shard: where it should land, or somewhere else."""
        row = self._row(shard)
        if payload is not row.view:
            row.values.copy_(tensor_over(payload, self._dtype))
        row.version = version
        self.forget(shard)
        self._complete[shard], self._coming[shard] = row, None

    def forget(self, shard: int) -> None:
        """What is kept of this shard is not needed: there is a newer one."""
        row = self._complete[shard]
        if row is not None:
            self._spare[shard].append(row)
            self._complete[shard] = None

    def put(self, shard: int, target: Tensor) -> int | None:
        """Put what is kept of this shard in place. Returns its version; None if nothing is kept."""
        row = self._complete[shard]
        if row is None:
            return None
        target.copy_(row.values)
        self.forget(shard)
        return row.version

    @property
    def nbytes(self) -> int:
        """The memory that this takes."""
        rows = [*self._coming, *self._complete, *(row for spare in self._spare for row in spare)]
        return sum(row.view.nbytes for row in rows if row is not None)

    def _row(self, shard: int) -> Row:
        row = self._coming[shard]
        if row is None:
            spare = self._spare[shard]
            row = self._coming[shard] = spare.pop() if spare else Row(self._sizes[shard], self._dtype)
        return row
