"""One worker's part of a DataLoader.

`shard(loader, rank=…, world_size=…)` gives a DataLoader like the one it gets, with the same dataset, batch size,
workers and so on, that goes over this worker's part only. Its epochs count up by themselves, each time that it is
iterated; `set_epoch` says which comes next.

- As a rule the parts are even and change with each epoch: a permutation of all samples by seed and epoch, the same at
  every worker, is cut into parts of equal length. The few samples left over, fewer than there are workers, are unused
  in that epoch; they are others in the next. A loader that does not shuffle has its part in order.
- With `alpha` the parts are uneven, fixed for the run, and no sample is left over: each class is shared by proportions
  from Dirichlet(alpha). 0.1 gives workers few classes each, 100 nearly the same mixture. Parts differ in length.
  A loader that shuffles does so within its part, anew in each epoch.
- An `IterableDataset` has no samples to choose from: each worker reads the whole stream and has every `world_size`-th
  batch, beginning with its rank's. That is right if the stream is the same at every worker.

The order comes from the seed, not from the loader's generator: that one would differ from worker to worker. A loader
may shuffle, go in order, or have a `SubsetRandomSampler`, also inside a plain `BatchSampler`. A sampler or batch
sampler of one's own may choose other samples at each worker, so it is refused with a `ShardError`; with one worker
there is nothing to share, and it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

from paceline.training.parts import (
    ORDER,
    Indices,
    ShardError,
    check_enough,
    class_numbers,
    even_part,
    stream,
    uneven_parts,
)

SAME = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


class Part(Sampler[int]):
    """The indices of one worker. An epoch counts as soon as the first of them is drawn."""

    def __init__(self, pool: Indices, *, rank: int, world_size: int, seed: int, shuffle: bool) -> None:
        self.pool, self.rank, self.world_size, self.seed, self.shuffle = pool, rank, world_size, seed, shuffle
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        indices = self.indices(self.epoch)
        self.epoch += 1
        yield from map(int, indices)

    def __len__(self) -> int:
        return len(self.pool) // self.world_size

    def indices(self, epoch: int) -> Indices:
        """What it gives in this epoch, in order."""
        rank, world_size, seed, shuffle = self.rank, self.world_size, self.seed, self.shuffle
        places = even_part(len(self.pool), rank=rank, world_size=world_size, seed=seed, epoch=epoch, shuffle=shuffle)
        return self.pool[places]


class FixedPart(Part):
    """The indices of one worker, the same in every epoch but for their order."""

    def __len__(self) -> int:
        return len(self.pool)

    def indices(self, epoch: int) -> Indices:
        if not self.shuffle:
            return self.pool
        return stream(self.seed, ORDER, epoch=epoch, rank=self.rank).permutation(self.pool)


class ShardLoader(DataLoader[Any]):
    """A DataLoader of one worker's part."""

    part: Part | None = None  # its sampler, unless it has a stream or a sampler of the user's own

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next. A stream, or a sampler of the user's own, is told if it wants to know."""
        if type(epoch) is not int or epoch < 0:
            raise ShardError(f"the epoch is {epoch!r}; it is a whole number from 0")
        listeners: tuple[Any, ...] = (
            (self.part,) if self.part is not None else (self.dataset, self.sampler, self.batch_sampler)
        )
        for listener in listeners:
            if hasattr(listener, "set_epoch"):
                listener.set_epoch(epoch)


class StreamLoader(ShardLoader):
    """A DataLoader of every `world_size`-th batch of a stream."""

    rank: int
    world_size: int

    def __iter__(self) -> Any:
        return islice(super().__iter__(), self.rank, None, self.world_size)

    def __len__(self) -> int:
        return len(range(self.rank, super().__len__(), self.world_size))


Loader = TypeVar("Loader", bound=ShardLoader)


def shard(
    loader: DataLoader[Any],
    *,
    rank: int,
    world_size: int,
    seed: int = 0,
    alpha: float | None = None,
    labels: ArrayLike | None = None,
) -> ShardLoader:
    """This worker's part of a loader. `labels` are for `alpha`; if not given, they are found from the dataset."""
    _check(loader, rank, world_size)
    if isinstance(loader.dataset, IterableDataset):
        return _stream(loader, rank, world_size, alpha)
    chosen = _pool(loader)
    if chosen is None:
        if world_size == 1 and alpha is None:
            return _like(loader, ShardLoader, **_own_sampling(loader))
        raise ShardError(_refusal(loader))
    pool, shuffle = chosen
    least = _least(loader)
    if world_size > 1:
        check_enough(len(pool), world_size, least)
    if alpha is None:
        part = Part(pool, rank=rank, world_size=world_size, seed=seed, shuffle=shuffle)
    else:
        classes = class_numbers(labels_of(loader.dataset, labels))[pool]
        parts = uneven_parts(classes, world_size=world_size, alpha=alpha, seed=seed, least=least)
        part = FixedPart(pool[parts[rank]], rank=rank, world_size=world_size, seed=seed, shuffle=shuffle)
    sharded = _like(loader, ShardLoader, **_sampling(loader, part))
    sharded.part = part
    return sharded


def labels_of(dataset: Dataset[Any], given: ArrayLike | None = None) -> NDArray[Any]:
    """The class of each sample: as given, or the dataset's `targets` or `labels`, or the last of its tensors."""
    labels = _array(_found(dataset) if given is None else given)
    size = len(dataset)  # type: ignore[arg-type]
    if labels.ndim and len(labels) != size:
        raise ShardError(f"there are {len(labels)} labels for {size} samples; give one for each, as labels=...")
    return labels


def _found(dataset: Dataset[Any]) -> Any:
    for name in ("targets", "labels"):
        if getattr(dataset, name, None) is not None:
            return getattr(dataset, name)
    if isinstance(dataset, TensorDataset):
        return dataset.tensors[-1]
    if isinstance(dataset, Subset):
        return labels_of(dataset.dataset)[_array(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        return np.concatenate([labels_of(one) for one in dataset.datasets])
    raise ShardError(
        f"{type(dataset).__name__} has neither targets nor labels to tell classes by; give them as labels=..."
    )


def _array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _check(loader: DataLoader[Any], rank: int, world_size: int) -> None:
    if not isinstance(loader, DataLoader):
        raise ShardError(f"a {type(loader).__name__} cannot be shared; give a torch DataLoader")
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise ShardError(f"{type(loader).__name__} iterates in its own way; give a plain torch DataLoader")
    if type(world_size) is not int or world_size < 1:
        raise ShardError(f"world_size is {world_size!r}; it is the number of workers, from 1")
    if type(rank) is not int or not 0 <= rank < world_size:
        raise ShardError(f"rank is {rank!r}; with {world_size} workers it is a whole number from 0 to {world_size - 1}")


def _stream(loader: DataLoader[Any], rank: int, world_size: int, alpha: float | None) -> ShardLoader:
    if alpha is not None:
        raise ShardError("a stream cannot be shared by classes: alpha needs a dataset with a length")
    if world_size == 1:
        return _like(loader, ShardLoader, batch_size=loader.batch_size, drop_last=loader.drop_last)
    if loader.num_workers > 1 and not loader.in_order:
        raise ShardError("in_order=False gives the batches of a stream in another order at each worker; leave it out")
    stream_loader = _like(loader, StreamLoader, batch_size=loader.batch_size, drop_last=loader.drop_last)
    stream_loader.rank, stream_loader.world_size = rank, world_size
    return stream_loader


def _pool(loader: DataLoader[Any]) -> tuple[Indices, bool] | None:
    """The indices that a loader goes over, and whether it shuffles them. None if that is up to a sampler of its own."""
    sampler: Any = loader.sampler
    if loader.batch_sampler is not None:
        if type(loader.batch_sampler) is not BatchSampler:
            return None
        sampler = loader.batch_sampler.sampler
    if type(sampler) is SequentialSampler:
        return np.arange(len(sampler.data_source)), False
    if type(sampler) is RandomSampler:
        whole = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
        return (np.arange(sampler.num_samples), True) if whole else None
    if type(sampler) is SubsetRandomSampler:
        return _array(sampler.indices).astype(np.int64), True
    return None


def _refusal(loader: DataLoader[Any]) -> str:
    batches = loader.batch_sampler
    own = batches if batches is not None and type(batches) is not BatchSampler else getattr(batches, "sampler", None)
    name = type(loader.sampler if own is None else own).__name__
    return (
        f"the loader's {name} may choose other samples at each worker; give a loader that shuffles or goes in order, "
        f"or let the sampler choose this worker's part itself and do without shard()"
    )


def _least(loader: DataLoader[Any]) -> int:
    """How many samples a worker needs for one batch."""
    batches = loader.batch_sampler
    return batches.batch_size if isinstance(batches, BatchSampler) and batches.drop_last else 1


def _own_sampling(loader: DataLoader[Any]) -> dict[str, Any]:
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"batch_sampler": loader.batch_sampler}
    return {"batch_size": loader.batch_size, "drop_last": loader.drop_last, "sampler": loader.sampler}


def _sampling(loader: DataLoader[Any], part: Part) -> dict[str, Any]:
    given = loader.batch_sampler
    if loader.batch_size is None and isinstance(given, BatchSampler):
        return {"batch_sampler": BatchSampler(part, given.batch_size, given.drop_last)}
    return _own_sampling(loader) | {"sampler": part}


def _like(loader: DataLoader[Any], kind: type[Loader], **sampling: Any) -> Loader:
    """A loader with other samples, and all else the same."""
    same = {name: getattr(loader, name) for name in SAME}
    if loader.pin_memory_device:
        same["pin_memory_device"] = loader.pin_memory_device
    return kind(loader.dataset, **sampling, **same)
