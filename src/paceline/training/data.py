"""`paceline.shard(loader)`: the part of a DataLoader that is this worker's in the run it takes part in."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

from paceline.training.session import session
from paceline.training.sharding import shard as part_of

_parts: WeakKeyDictionary[DataLoader[Any], DataLoader[Any]] = WeakKeyDictionary()


def shard(
    loader: DataLoader[Any],
    *,
    alpha: float | None = None,
    labels: ArrayLike | Tensor | None = None,
    seed: int = 0,
) -> DataLoader[Any]:
    """This worker's part of a loader; alone, the loader itself.

    The parts are even and change with each epoch. With `alpha` they are uneven, by class, from Dirichlet(alpha);
    `labels` are the classes if the dataset does not say. Asked again for the same loader, as in a loop over epochs, it
    gives the same part, whose epochs count on.
    """
    place = session()
    if place is None:
        return loader
    part = _parts.get(loader)
    if part is None:
        rank, world_size = place.rank, place.world_size
        part = part_of(loader, rank=rank, world_size=world_size, seed=seed, alpha=alpha, labels=labels)
        _parts[loader] = part
        place.batch_size = loader.batch_size
    return part
