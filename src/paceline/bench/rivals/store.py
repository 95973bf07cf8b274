"""A server's own limit: its store sums and applies a round's gradients, and nobody sends or reads anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import torch

from paceline.bench.rivals.member import RATE, Place, Rounds
from paceline.nodes.cores import crew_here
from paceline.params import Optimizer, Space
from paceline.params.store import Store


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    torch.set_num_threads(1)
    store = Store(
        Optimizer("sgd", {"lr": RATE * place.workers}),
        Space({"all": (place.elements,)}),
        0,
        place.elements,
        (torch.zeros(place.elements), torch.zeros(place.elements)),
        crew=crew_here(),
    )
    gradients = [torch.full((place.elements,), rank + 1.0) for rank in range(place.workers)]
    numbers = count()

    def rounds(n: int) -> None:
        for _ in range(n):
            number = next(numbers)
            for rank, gradient in enumerate(gradients):
                store.gather(number, rank, gradient)
            store.close(number, progress=number)

    rounds(1)
    place.check(store.values.min().item(), store.values.max().item())
    yield rounds
