"""Gloo: `all_reduce` of the gradients among the workers, each of which applies the sum to its own parameters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from paceline.bench.rivals.member import PATIENCE, RATE, Place, Rounds


def join(place: Place) -> None:
    """Make the process group of all workers."""
    dist.init_process_group(
        "gloo",
        init_method=f"file://{place.folder}/meet",
        rank=place.rank,
        world_size=place.workers,
        timeout=timedelta(seconds=PATIENCE),
    )


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    join(place)
    gradient = torch.full((place.elements,), place.rank + 1.0)
    parameters = torch.zeros(place.elements)

    def rounds(n: int) -> None:
        for _ in range(n):
            dist.all_reduce(gradient)
            parameters.add_(gradient, alpha=-RATE)

    rounds(1)
    place.check(parameters.min().item(), parameters.max().item())
    gradient.zero_()  # it has the sum in it now, and would grow from round to round
    yield rounds
    dist.destroy_process_group()
