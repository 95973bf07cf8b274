"""One worker's part by classes: for good, in the proportions asked for, by labels that are found or given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from paceline.training.sharding import shard
from tests.effort import cases
from tests.training.loaders import CLASSES, Named, batches, everyone, loader_of, samples


@given(size=st.integers(8, 80), world_size=st.integers(1, 4), alpha=st.floats(0.01, 100), shuffle=st.booleans())
@settings(max_examples=cases(60), deadline=None)
def test_with_alpha_every_sample_is_one_workers_for_good(
    size: int, world_size: int, alpha: float, shuffle: bool
) -> None:
    workers = everyone(loader_of(size, batch_size=4, shuffle=shuffle), world_size, alpha=alpha)
    parts = [samples(worker) for worker in workers]
    assert sorted(sample for part in parts for sample in part) == list(range(size))
    assert all(parts)
    for part, worker in zip(parts, workers, strict=True):
        assert len(worker) == -(-len(part) // 4)
        again = samples(worker)
        assert sorted(again) == sorted(part)
        if not shuffle:
            assert part == again == sorted(part)
        elif len(part) > 30:
            assert part != again


def test_a_small_alpha_gives_workers_few_classes() -> None:
    workers = everyone(loader_of(1000, batch_size=10, shuffle=True), 4, alpha=0.01, seed=3)
    counts = np.array([np.bincount(np.array(samples(worker)) % CLASSES, minlength=CLASSES) for worker in workers])
    assert counts.max(axis=0).sum() > 900  # of 1000: nearly all of a class is at one worker
    even = everyone(loader_of(1000, batch_size=10, shuffle=True), 4, alpha=1e6)
    assert [len(samples(worker)) for worker in even] == pytest.approx([250] * 4, abs=5)


def test_with_drop_last_everyone_has_a_batch() -> None:
    workers = everyone(loader_of(100, batch_size=16, drop_last=True), 6, alpha=0.01)
    assert all(len(worker) >= 1 and len(batches(worker)) == len(worker) for worker in workers)


HALVES = [0] * 50 + [1] * 50


@pytest.mark.parametrize(
    "dataset",
    [
        Named(100, targets=HALVES),
        Named(100, labels=np.array(HALVES)),
        Named(100, targets=torch.tensor(HALVES)),
        Named(100, targets=None, labels=["dog" if half else "cat" for half in HALVES]),
        TensorDataset(torch.arange(100), torch.tensor(HALVES)),
        Subset(Named(200, targets=[9] * 100 + HALVES), range(100, 200)),
        ConcatDataset([Named(50, targets=[0] * 50), TensorDataset(torch.arange(50), torch.ones(50, dtype=torch.long))]),
    ],
)
def test_labels_are_found(dataset: Dataset[Any]) -> None:
    found = everyone(DataLoader(dataset), 2, alpha=0.3, seed=5)
    given = everyone(DataLoader(Named(100)), 2, alpha=0.3, seed=5, labels=HALVES)
    for one, other in zip(found, given, strict=True):
        assert list(one.sampler) == list(other.sampler)


def test_given_labels_count_more_than_the_datasets() -> None:
    given = shard(DataLoader(Named(100, targets=[0] * 100)), rank=0, world_size=2, alpha=0.3, labels=HALVES)
    bare = shard(DataLoader(Named(100)), rank=0, world_size=2, alpha=0.3, labels=HALVES)
    ignored = shard(DataLoader(Named(100, targets=[0] * 100)), rank=0, world_size=2, alpha=0.3)
    assert list(given.sampler) == list(bare.sampler) != list(ignored.sampler)
