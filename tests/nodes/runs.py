"""Whole runs for tests, on every wire: threads of this process on the in-memory wire, real processes on the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from paceline.launch.local import LocalCluster
from paceline.nodes import Coordinator, Job, LocalWorker, PeerLost, Server, StateServer, Worker
from paceline.nodes.job import Network
from paceline.wire import Address, MemoryNetwork

WIRES = ("memory", "shared-memory", "tcp")
LONGEST = 120.0  # seconds that any run may take before it counts as stuck


class ThreadSeat:
    """What `paceline.launch.Seat` is to a process."""

    def __init__(
        self, job: Job, number: int, network: Network, coordinator: Address, arguments: dict[str, Any]
    ) -> None:
        self.job = job
        self.number = number
        self.coordinator = coordinator
        self.arguments = arguments
        self._network = network

    def worker(self, shapes: Any, **options: Any) -> Worker:
        return Worker(self.job, self._network, shapes, number=self.number, **options)

    def local_worker(self, shapes: Any, **options: Any) -> LocalWorker:
        return LocalWorker(self.job, self._network, shapes, number=self.number, **options)


def run(
    wire: str,
    job: Job,
    program: Callable[[Any], Any],
    arguments: dict[str, Any] | None = None,
    *,
    traces: Path | None = None,
    servers: dict[int, dict[str, Any]] | None = None,
) -> list[Any]:
    """What the workers' programs return, by number. Raises the first error of any node, a cause before its consequence:
    whoever fails hangs up, and others may say so before it has said why.

    `servers` are more arguments of single servers; on the in-memory wire only.
    """
    if wire == "memory":
        return on_threads(job, program, arguments or {}, traces, servers=servers)
    assert servers is None
    name = f"{program.__module__}:{program.__qualname__}"
    with LocalCluster(job, name, arguments, wire=wire, traces=traces) as cluster:  # type: ignore[arg-type]
        ended = cluster.wait(LONGEST)
        for one in ended.values():
            if one.error is not None:
                raise type(one.error)(f"{one.name}: {one.error}\n{one.log}")
        return [ended[f"worker {number}"].value for number in range(job.workers)]


def on_threads(
    job: Job,
    program: Callable[[Any], Any],
    arguments: dict[str, Any],
    traces: Path | None = None,
    network: Network | None = None,
    servers: dict[int, dict[str, Any]] | None = None,
) -> list[Any]:
    """The same on threads of this process, on any network."""
    network, servers = network or MemoryNetwork(), servers or {}
    coordinator = Coordinator(job, network)
    address = coordinator.start()
    results: dict[int, Any] = {}
    errors: list[BaseException] = []

    def guarded(name: str, call: Callable[[], None]) -> Thread:
        def body() -> None:
            torch.set_num_threads(1)  # holds for this thread; processes have one, too
            try:
                call()
            except BaseException as error:
                errors.append(error)

        return Thread(target=body, name=name, daemon=True)

    def serve(number: int) -> None:
        trace = traces and traces / f"server-{number}.trace"
        server = Server(job, number, network, trace=trace, **servers.get(number, {}))
        try:
            server.run(address)
        finally:
            server.close()

    def answer_queries() -> None:
        state_server = StateServer(job, network)
        try:
            state_server.run(address)
        finally:
            state_server.close()

    def work(number: int) -> None:
        results[number] = program(ThreadSeat(job, number, network, address, arguments))

    threads = [guarded("coordinator", coordinator.run)]
    threads += [guarded(f"server {n}", lambda n=n: serve(n)) for n in range(job.servers)]  # type: ignore[misc]
    threads += [guarded("state server", answer_queries)] if job.asks else []
    threads += [guarded(f"worker {n}", lambda n=n: work(n)) for n in range(job.workers)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONGEST)
        assert not thread.is_alive(), f"{thread.name} hangs"
    coordinator.close()
    if errors:
        raise min(errors, key=lambda error: isinstance(error, PeerLost))
    return [results[number] for number in range(job.workers)]
