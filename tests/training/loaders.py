"""Datasets whose samples are their own numbers, and loaders of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from paceline.training.sharding import ShardLoader, shard

CLASSES = 5


def numbers(size: int) -> TensorDataset:
    """Samples that are their own index, with a class each."""
    return TensorDataset(torch.arange(size), torch.arange(size) % CLASSES)


def loader_of(size: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(numbers(size), **options)


def batches(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


def samples(loader: DataLoader[Any]) -> list[int]:
    return [sample for batch in batches(loader) for sample in batch]


def everyone(loader: DataLoader[Any], world_size: int, **options: Any) -> list[ShardLoader]:
    return [shard(loader, rank=rank, world_size=world_size, **options) for rank in range(world_size)]


class Named(Dataset[Any]):
    """A dataset with some attributes."""

    def __init__(self, size: int, **attributes: Any) -> None:
        self.size = size
        vars(self).update(attributes)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, 0


class Stream(IterableDataset[int]):
    """Numbers in order, shared by the loader's own workers if it has some."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.epoch = -1

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(first, self.size, step))

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Measured(Stream):
    """The same with a length."""

    def __len__(self) -> int:
        return self.size
