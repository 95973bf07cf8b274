"""torch RPC: the parameter server of PyTorch's own tutorial on asynchronous executions, on TensorPipe.

A worker calls a function on each server with its gradient; the server sums, and when it has all of them applies the sum
and answers everyone with the parameters. Its shared-memory transport is left out: that one waits by spinning, which
takes the machine from the others, and is the slower one where there are more processes than cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch.distributed import rpc

from paceline.bench.rivals.member import PATIENCE, RATE, Place, Rounds


class Server:
    """A slice of the parameters."""

    def __init__(self, elements: int, workers: int) -> None:
        self.parameters = torch.zeros(elements)
        self._sum = torch.zeros(elements)
        self._workers = workers
        self._waiting: list[torch.futures.Future[torch.Tensor]] = []
        self._lock = Lock()

    def push_pull(self, gradient: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        answer: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        with self._lock:
            if self._waiting:
                self._sum.add_(gradient)
            else:
                self._sum.copy_(gradient)
            self._waiting.append(answer)
            if len(self._waiting) < self._workers:
                return answer
            self.parameters.add_(self._sum, alpha=-RATE)
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set_result(self.parameters)
        return answer


SERVING: list[Server] = []  # the server of this process, where a call from another finds it


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def push_pull(gradient: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    return SERVING[0].push_pull(gradient)


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    if place.role == "server":
        slices = torch.empty(place.elements, device="meta").tensor_split(place.servers)
        SERVING.append(Server(len(slices[place.rank]), place.workers))
    rpc.init_rpc(  # type: ignore[no-untyped-call]
        f"{place.role}{place.rank}",
        rank=place.rank + (place.workers if place.role == "server" else 0),
        world_size=place.workers + place.servers,
        rpc_backend_options=rpc.TensorPipeRpcBackendOptions(
            num_worker_threads=max(4, place.workers),
            _transports=["uv"],
            rpc_timeout=PATIENCE,
            init_method=f"file://{place.folder}/meet",
        ),
    )
    if place.role == "server":
        yield _no_rounds
    else:
        yield _worker(place)
    rpc.shutdown(graceful=False)


def _worker(place: Place) -> Rounds:
    gradients = torch.full((place.elements,), place.rank + 1.0).tensor_split(place.servers)
    parameters = list(gradients)

    def rounds(n: int) -> None:
        for _ in range(n):
            answers = [
                rpc.rpc_async(f"server{server}", push_pull, args=(gradient,))
                for server, gradient in enumerate(gradients)
            ]
            parameters[:] = [answer.wait() for answer in answers]

    rounds(1)
    place.check(min(part.min().item() for part in parameters), max(part.max().item() for part in parameters))
    return rounds


def _no_rounds(n: int) -> None:
    """A server does what workers call."""
