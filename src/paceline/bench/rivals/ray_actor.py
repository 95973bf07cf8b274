"""Ray: the synchronous parameter server of Ray's own documentation, a server actor and an actor for each worker.

Gradients and parameters go through Ray's object store, out of which actors on one machine read without a copy. The
program that drives the actors is the group's one process; Ray starts the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray
import torch

from paceline.bench.rivals.member import PATIENCE, RATE, Place, Rounds


class Server:
    """The parameters."""

    def __init__(self, elements: int) -> None:
        self._parameters = torch.zeros(elements)
        self._sum = torch.zeros(elements)

    def apply(self, *gradients: np.ndarray) -> np.ndarray:
        self._sum.copy_(_tensor(gradients[0]))
        for gradient in gradients[1:]:
            self._sum.add_(_tensor(gradient))
        self._parameters.add_(self._sum, alpha=-RATE)
        return self._parameters.numpy()


class Worker:
    """One worker's gradient, and the parameters as it has them."""

    def __init__(self, rank: int, elements: int) -> None:
        self._gradient = np.full(elements, rank + 1.0, np.float32)
        self._parameters: np.ndarray | None = None

    def gradient(self, parameters: np.ndarray | None) -> np.ndarray:
        self._parameters = parameters
        return self._gradient

    def take(self, parameters: np.ndarray) -> None:
        self._parameters = parameters

    def range(self) -> tuple[float, float]:
        assert self._parameters is not None
        return float(self._parameters.min()), float(self._parameters.max())


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    size = 4 * place.elements
    ray.init(
        num_cpus=1,  # so that Ray keeps few spare processes; the actors ask for none
        object_store_memory=(100 << 20) + (2 * place.workers + 4) * size,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=place.folder,
    )
    server: Any = ray.remote(num_cpus=0)(Server).remote(place.elements)
    actor = ray.remote(num_cpus=0)(Worker)
    workers: list[Any] = [actor.remote(rank, place.elements) for rank in range(place.workers)]
    parameters: list[Any] = [None]

    def rounds(n: int) -> None:
        for _ in range(n):
            gradients = [worker.gradient.remote(parameters[0]) for worker in workers]
            parameters[0] = server.apply.remote(*gradients)
        ray.get([worker.take.remote(parameters[0]) for worker in workers], timeout=PATIENCE)

    rounds(1)
    for smallest, largest in ray.get([worker.range.remote() for worker in workers], timeout=PATIENCE):
        place.check(smallest, largest)
    yield rounds
    ray.shutdown()


def _tensor(array: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what comes out of the object store cannot be written to, nor is it
        return torch.from_numpy(array)
