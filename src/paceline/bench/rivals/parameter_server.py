"""Paceline itself, under BSP, as one more rival. The coordinator is a thread of the first server's process.

`PACELINE_BENCH` says how, in JSON: over which wire, and whether gradients are copied into the memory that is sent from
(or written there in the first place, as autograd does).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import msgspec
import torch
from msgspec import Struct

from paceline.bench.rivals.member import PATIENCE, RATE, Place, Rounds
from paceline.nodes import Coordinator, Job, Server, Worker
from paceline.params import Optimizer
from paceline.wire import Address, SocketNetwork

FOREVER = 1e6  # seconds: processes of a rival that is not being measured stand still


class Setup(Struct, frozen=True):
    """How to run Paceline. `shapes` are the sizes of the tensors that the elements are cut into; by default one."""

    wire: str = "auto"
    copied: bool = False
    slicing: str = "elastic"
    barrier: bool = False
    shapes: tuple[int, ...] = ()

    def environment(self) -> dict[str, str]:
        return {"PACELINE_BENCH": msgspec.json.encode(self).decode()}


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    setup = msgspec.json.decode(os.environ.get("PACELINE_BENCH", "{}"), type=Setup)
    job = Job(
        workers=place.workers,
        servers=place.servers,
        optimizer=Optimizer("sgd", {"lr": RATE * place.workers}),
        slicing=setup.slicing,  # type: ignore[arg-type]
        barrier=setup.barrier,
        silence=FOREVER,
        start_within=PATIENCE,
    )
    network = SocketNetwork(wire=setup.wire)  # type: ignore[arg-type]
    if place.role == "server":
        serve(place, job, network)
        yield lambda n: None
        return
    sizes = setup.shapes or (place.elements,)
    with Worker(job, network, {f"tensor {n}": (size,) for n, size in enumerate(sizes)}, number=place.rank) as worker:
        worker.start(_meet(place), torch.zeros(place.elements))
        gradient = torch.full((place.elements,), place.rank + 1.0) if setup.copied else None
        worker.gradients.fill_(place.rank + 1.0)

        def rounds(n: int) -> None:
            for _ in range(n):
                worker.step(gradient)

        rounds(1)
        place.check(worker.parameters.min().item(), worker.parameters.max().item())
        yield rounds


def serve(place: Place, job: Job, network: SocketNetwork) -> None:
    """Start a server on a thread, and with the first one the coordinator."""
    if place.rank == 0:
        coordinator = Coordinator(job, network)
        address = Path(place.folder) / "address.part"
        address.write_bytes(msgspec.json.encode(coordinator.start()))
        address.rename(address.with_suffix(""))
        Thread(target=coordinator.run, daemon=True).start()
    server = Server(job, place.rank, network)
    Thread(target=server.run, args=(_meet(place),), daemon=True).start()


def _meet(place: Place) -> Address:
    path, deadline = Path(place.folder) / "address", monotonic() + PATIENCE
    while not path.exists():
        if monotonic() > deadline:
            raise TimeoutError(f"no coordinator came up within {PATIENCE:g} s")
        sleep(0.01)
    return msgspec.json.decode(path.read_bytes(), type=Address)
