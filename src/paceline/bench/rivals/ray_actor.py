"""Ray: an actor as the server. Each worker, an actor too, hands its gradient to a method and gets the parameters back.

Both go through Ray's object store, out of which actors on one machine read without a copy. The program that drives the
actors is the group's one process; Ray starts the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import Any

import numpy as np
import ray
import torch

from paceline.bench.rivals.member import PATIENCE, RATE, Place, Rounds


class Server:
    """The parameters. Each worker's call has a thread of its own."""

    def __init__(self, elements: int, workers: int) -> None:
        self._parameters = torch.zeros(elements)
        self._sum = torch.zeros(elements)
        self._workers = workers
        self._arrived = self._round = 0
        self._applied = Condition()

    def push_pull(self, gradient: np.ndarray) -> np.ndarray:
        with self._applied:
            if self._arrived:
                self._sum.add_(_tensor(gradient))
            else:
                self._sum.copy_(_tensor(gradient))
            self._arrived += 1
            round_ = self._round
            if self._arrived == self._workers:
                self._parameters.add_(self._sum, alpha=-RATE)
                self._arrived, self._round = 0, round_ + 1
                self._applied.notify_all()
            elif not self._applied.wait_for(lambda: self._round > round_, PATIENCE):
                raise TimeoutError(f"{self._arrived} of {self._workers} gradients have come")
        return self._parameters.numpy()


class Worker:
    """One worker's gradient, and the parameters as it has them."""

    def __init__(self, rank: int, elements: int) -> None:
        self._gradient = np.full(elements, rank + 1.0, np.float32)
        self._parameters = self._gradient

    def rounds(self, server: Any, n: int) -> None:
        for _ in range(n):
            self._parameters = ray.get(server.push_pull.remote(self._gradient), timeout=PATIENCE)

    def range(self) -> tuple[float, float]:
        return float(self._parameters.min()), float(self._parameters.max())


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    with _cluster(place):
        server = _actor(Server, place.elements, place.workers, threads=place.workers)
        workers = [_actor(Worker, rank, place.elements) for rank in range(place.workers)]

        def rounds(n: int) -> None:
            ray.get([worker.rounds.remote(server, n) for worker in workers], timeout=PATIENCE)

        rounds(1)
        for smallest, largest in ray.get([worker.range.remote() for worker in workers], timeout=PATIENCE):
            place.check(smallest, largest)
        yield rounds


@contextmanager
def _cluster(place: Place) -> Iterator[None]:
    """Ray on this machine, with room for two rounds of gradients and parameters."""
    ray.init(
        num_cpus=1,  # so that Ray keeps few spare processes; the actors ask for none
        object_store_memory=(100 << 20) + 4 * (place.workers + 1) * 4 * place.elements,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=place.folder,
    )
    yield
    ray.shutdown()


def _actor(kind: type, *arguments: int, threads: int = 1) -> Any:
    return ray.remote(num_cpus=0, max_concurrency=threads)(kind).remote(*arguments)


def _tensor(array: np.ndarray) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what comes out of the object store cannot be written to, nor is it
        return torch.from_numpy(array)
