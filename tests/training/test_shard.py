"""One worker's part of a real DataLoader: what it gives, and what it keeps of the loader."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler

from paceline.training.sharding import shard
from tests.effort import cases
from tests.training.loaders import batches, everyone, loader_of, numbers, samples


@given(size=st.integers(4, 80), world_size=st.integers(1, 4), batch_size=st.integers(1, 7), shuffle=st.booleans())
@settings(max_examples=cases(60), deadline=None)
def test_workers_have_equal_and_disjoint_parts_in_each_epoch(
    size: int, world_size: int, batch_size: int, shuffle: bool
) -> None:
    workers = everyone(loader_of(size, batch_size=batch_size, shuffle=shuffle), world_size)
    for _ in range(3):
        parts = [samples(worker) for worker in workers]
        together = [sample for part in parts for sample in part]
        assert {len(part) for part in parts} == {size // world_size}
        assert len(set(together)) == len(together) == size - size % world_size
        if not shuffle:
            assert all(part == sorted(part) for part in parts)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_epoch_counts_up_by_itself(workers: int, persistent: bool) -> None:
    options = {"num_workers": workers, "persistent_workers": persistent and workers > 0}
    loaders = everyone(loader_of(22, batch_size=4, shuffle=True, **options), 2)
    epochs = [[samples(loader) for loader in loaders] for _ in range(3)]
    for first, second in epochs:
        assert sorted(first + second) == list(range(22))
    assert epochs[0] != epochs[1] != epochs[2]
    loaders[0].set_epoch(1)
    assert [samples(loaders[0]), samples(loaders[0])] == [epochs[1][0], epochs[2][0]]


def test_loader_workers_or_none_and_batches_or_none_give_the_same() -> None:
    plain = shard(loader_of(20, shuffle=True), rank=0, world_size=2)
    several = shard(loader_of(20, shuffle=True, num_workers=2), rank=0, world_size=2)
    single = shard(loader_of(20, shuffle=True, batch_size=None), rank=0, world_size=2)
    for _ in range(2):
        assert samples(plain) == samples(several) == [int(number) for number, _ in single]


def test_two_iterations_at_once_are_two_epochs() -> None:
    loader = shard(loader_of(40, shuffle=True), rank=0, world_size=2)
    expected = [samples(loader), samples(loader)]
    loader.set_epoch(0)
    both = list(zip(loader, loader, strict=True))
    assert [[int(pair[which][0]) for pair in both] for which in (0, 1)] == expected


def test_an_iteration_that_is_left_early_counts() -> None:
    loader = shard(loader_of(40, shuffle=True), rank=0, world_size=2)
    first, second = samples(loader), samples(loader)
    loader.set_epoch(0)
    for batch in loader:
        assert batch[0].tolist() == first[:1]
        break
    assert samples(loader) == second


def test_the_seed_decides_and_not_torchs_own() -> None:
    def first(seed: int, torch_seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(torch_seed)
        return samples(shard(loader_of(40, shuffle=True, generator=generator), rank=1, world_size=2, seed=seed))

    assert first(1, 1) == first(1, 2)
    assert first(1, 1) != first(2, 1)


def test_one_worker_alone_has_everything() -> None:
    assert samples(shard(loader_of(10, batch_size=3), rank=0, world_size=1)) == list(range(10))
    shuffled = shard(loader_of(30, batch_size=3, shuffle=True), rank=0, world_size=1)
    first, second = samples(shuffled), samples(shuffled)
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second
    assert samples(shard(loader_of(2, batch_size=3, drop_last=True), rank=0, world_size=1)) == []


# What stays as it was.


def _nothing(number: int) -> None:
    pass


def _as_list(batch: list[Any]) -> list[Any]:
    return batch


def test_all_else_stays_as_it_was() -> None:
    loader = loader_of(
        40,
        batch_size=3,
        shuffle=True,
        num_workers=2,
        collate_fn=_as_list,
        drop_last=True,
        timeout=7,
        worker_init_fn=_nothing,
        multiprocessing_context="spawn",
        generator=torch.Generator(),
        prefetch_factor=5,
        persistent_workers=True,
        in_order=False,
    )
    sharded = shard(loader, rank=0, world_size=2)
    for name, value in vars(loader).items():
        if name not in ("sampler", "batch_sampler"):
            assert getattr(sharded, name) is value or getattr(sharded, name) == value, name


def test_lengths_and_batches() -> None:
    for drop_last, lengths in ((False, [4, 4, 2]), (True, [4, 4])):
        loader = shard(loader_of(21, batch_size=4, drop_last=drop_last), rank=0, world_size=2)
        assert [len(batch) for batch in batches(loader)] == lengths
        assert len(loader) == len(lengths)


def test_the_users_collate_function_is_used() -> None:
    loader = shard(loader_of(4, batch_size=2, collate_fn=_as_list), rank=1, world_size=2)
    assert [[int(number) for number, _ in batch] for batch in loader] == [[1, 3]]


def test_a_plain_batch_sampler_and_a_subset_are_shared() -> None:
    data = numbers(20)
    given = DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 3, drop_last=False))
    first, second = everyone(given, 2)
    assert sorted(samples(first) + samples(second)) == list(range(20))
    assert [len(batch) for batch in batches(first)] == [3, 3, 3, 1]
    before = samples(first)
    first.set_epoch(2)
    assert samples(first) == before

    chosen = [3, 5, 7, 11, 13, 17]
    for indices in (chosen, torch.tensor(chosen)):
        parts = everyone(DataLoader(data, sampler=SubsetRandomSampler(indices)), 3)  # type: ignore[arg-type]
        assert sorted(sample for part in parts for sample in samples(part)) == chosen
