"""What each worker was last given of a shard, for as long as a gradient computed from it may come.

Whoever was given the same version shares one copy, and a version that is still the shard's own needs none: it is copied
when an update is about to change it. A copy goes when the last worker that has it is given another version, or leaves.
So there are at most as many copies as workers, and as versions that anybody has.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Version:
    """One version that workers have: how many of them, and a copy of it once the shard has gone on."""

    __slots__ = ("copy", "workers")

    def __init__(self) -> None:
        self.workers = 0
        self.copy: Tensor | None = None


class Backups:
    """For one shard. A worker's `life` tells it from those that had its number before."""

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, Version]] = {}  # by worker
        self._now: Version | None = None  # what has been given of the values as they are
        self._spare: Tensor | None = None  # one that is free, so that not every update has to find new memory

    def give(self, worker: int, life: int) -> None:
        """A worker is given the values as they are now."""
        version = self._now = self._now or Version()
        version.workers += 1
        self._release(worker)
        self._given[worker] = life, version

    def before_update(self, values: Tensor) -> None:
        """The values are about to change: copy them if anybody has them."""
        version, self._now = self._now, None
        if version is not None and version.workers:
            copy = torch.empty_like(values) if self._spare is None else self._spare
            version.copy, self._spare = copy.copy_(values), None

    def of(self, worker: int, life: int) -> Tensor | None:
        """What this worker has, if that is known and not what the shard has now."""
        given = self._given.get(worker)
        return given[1].copy if given is not None and given[0] == life else None

    def forget(self, worker: int, life: int) -> None:
        """A worker has left. If it has been given nothing, the life before it is what there is to forget."""
        given = self._given.get(worker)
        if given is not None and given[0] <= life:
            self._release(worker)
            if len(self._copies()) == len(self._given):
                self._spare = None

    @property
    def nbytes(self) -> int:
        """The memory that this takes: never more than one copy of the shard for each worker."""
        spare = [] if self._spare is None else [self._spare]
        return sum(row.nbytes for row in [*self._copies(), *spare])

    def _copies(self) -> list[Tensor]:
        versions = {version for _, version in self._given.values()}
        return [version.copy for version in versions if version.copy is not None]

    def _release(self, worker: int) -> None:
        given = self._given.pop(worker, None)
        if given is None:
            return
        version = given[1]
        version.workers -= 1
        if not version.workers and version.copy is not None:
            self._spare, version.copy = version.copy, None
