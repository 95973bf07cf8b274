"""Paceline itself, under BSP, as one more rival. The coordinator is a thread of the first server's process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep

import msgspec
import torch

from paceline.bench.rivals.member import PATIENCE, RATE, Place, Rounds
from paceline.bench.rivals.setup import Setup
from paceline.nodes import Coordinator, Job, Server, Worker
from paceline.params import Optimizer
from paceline.wire import Address, SocketNetwork

FOREVER = 1e6  # seconds: processes of a rival that is not being measured stand still


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    setup = Setup.found()
    job = Job(
        workers=place.workers,
        servers=place.servers,
        optimizer=Optimizer("sgd", {"lr": RATE * place.workers}),
        slicing=setup.slicing,
        barrier=setup.barrier,
        silence=FOREVER,
        start_within=PATIENCE,
    )
    network = SocketNetwork(wire=setup.wire)
    if place.role == "server":
        if setup.one_core:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[place.rank % len(cores)]})
        serve(place, job, network)
        yield nothing
        return
    sizes = setup.sizes or (place.elements,)
    shapes = {f"tensor {n}": (size,) for n, size in enumerate(sizes)}
    with Worker(job, network, shapes, number=place.rank, in_place=setup.in_place) as worker:
        worker.start(meet(place), torch.zeros(place.elements))
        gradient = torch.full((place.elements,), place.rank + 1.0) if setup.copied else None
        worker.gradients.fill_(place.rank + 1.0)

        def rounds(n: int) -> None:
            for _ in range(n):
                worker.step(gradient)

        rounds(1)
        place.check(min(part.min().item() for part in worker.parts), max(part.max().item() for part in worker.parts))
        yield rounds


def nothing(n: int) -> None:
    """A server does rounds when the workers do."""


def serve(place: Place, job: Job, network: SocketNetwork) -> None:
    """Start a server on a thread, and with the first one the coordinator."""
    if place.rank == 0:
        coordinator = Coordinator(job, network)
        address = Path(place.folder) / "address.part"
        address.write_bytes(msgspec.json.encode(coordinator.start()))
        address.rename(address.with_suffix(""))
        Thread(target=coordinator.run, daemon=True).start()
    server = Server(job, place.rank, network)
    Thread(target=server.run, args=(meet(place),), daemon=True).start()


def meet(place: Place) -> Address:
    """Where the coordinator is."""
    return msgspec.json.decode(await_file(Path(place.folder) / "address").read_bytes(), type=Address)


def await_file(path: Path) -> Path:
    """Once it is there."""
    deadline = monotonic() + PATIENCE
    while not path.exists():
        if monotonic() > deadline:
            raise TimeoutError(f"{path.name} did not come up within {PATIENCE:g} s")
        sleep(0.01)
    return path
