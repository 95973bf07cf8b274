"""What cannot be shared, and what whoever tries gets to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, WeightedRandomSampler

from paceline.training.parts import ShardError
from paceline.training.sharding import shard
from tests.training.loaders import Named, Stream, batches, loader_of, numbers, samples


class Backwards(SequentialSampler):
    """A sampler of the user's own."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self) - 1, -1, -1))


class Bucketed(BatchSampler):
    """A batch sampler of the user's own."""


def own_samplers() -> dict[str, DataLoader[Any]]:
    data = numbers(12)
    return {
        "Backwards": DataLoader(data, sampler=Backwards(data)),
        "WeightedRandomSampler": DataLoader(data, sampler=WeightedRandomSampler([1.0] * 12, 12)),
        "RandomSampler": DataLoader(data, sampler=RandomSampler(data, replacement=True)),
        "Bucketed": DataLoader(data, batch_sampler=Bucketed(SequentialSampler(data), 4, False)),
        "Part": shard(DataLoader(data), rank=0, world_size=2),
        "list": DataLoader(data, batch_sampler=[[0, 1], [2]]),
    }


@pytest.mark.parametrize("name", list(own_samplers()))
def test_a_sampler_of_ones_own_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ShardError, match=f"the loader's {name} may choose other samples at each worker"):
        shard(own_samplers()[name], rank=0, world_size=2)


def test_a_sampler_of_ones_own_is_kept_by_one_worker_alone() -> None:
    for name in ("Backwards", "Bucketed", "list"):
        loader = own_samplers()[name]
        assert batches(shard(loader, rank=0, world_size=1)) == batches(loader)
    assert samples(shard(own_samplers()["Backwards"], rank=0, world_size=1)) == list(range(11, -1, -1))


def test_a_random_sampler_of_fewer_or_more_is_refused() -> None:
    data = numbers(12)
    for count in (6, 24):
        with pytest.raises(ShardError, match="RandomSampler"):
            shard(DataLoader(data, sampler=RandomSampler(data, num_samples=count)), rank=0, world_size=2)


class Ticking(DataLoader[Any]):
    """A loader that iterates in its own way."""

    def __iter__(self) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("loader", "options", "says"),
    [
        ([1, 2], {}, "a list cannot be shared; give a torch DataLoader"),
        (Ticking(numbers(4)), {}, "Ticking iterates in its own way"),
        (loader_of(4), {"rank": 2}, "rank is 2; with 2 workers it is a whole number from 0 to 1"),
        (loader_of(4), {"rank": -1}, "rank is -1"),
        (loader_of(4), {"rank": True}, "rank is True"),
        (loader_of(4), {"world_size": 0}, "world_size is 0"),
        (loader_of(3), {"world_size": 4}, "3 samples are too few for 4 workers: each needs at least 1"),
        (loader_of(7, batch_size=4, drop_last=True), {}, "7 samples are too few for 2 workers: each needs at least 4"),
        (loader_of(4), {"alpha": 0}, "alpha is 0"),
        (loader_of(4), {"alpha": 1.0, "labels": [0, 1]}, "there are 2 labels for 4 samples"),
        (loader_of(4), {"alpha": 1.0, "labels": [0.5] * 4}, "name no classes"),
        (DataLoader(Named(4)), {"alpha": 1.0}, "Named has neither targets nor labels"),
        (DataLoader(Stream(4)), {"alpha": 1.0}, "alpha needs a dataset with a length"),
        (DataLoader(Stream(4), num_workers=2, in_order=False), {}, "in_order=False"),
        (shard(DataLoader(Stream(4)), rank=0, world_size=2), {}, "StreamLoader iterates in its own way"),
    ],
)
def test_what_cannot_be_shared_is_told(loader: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ShardError) as caught:
        shard(loader, **({"rank": 0, "world_size": 2} | options))
    assert says in str(caught.value)


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", True])
def test_an_epoch_that_cannot_be_is_told(epoch: int) -> None:
    with pytest.raises(ShardError, match="the epoch is"):
        shard(loader_of(4), rank=0, world_size=2).set_epoch(epoch)
