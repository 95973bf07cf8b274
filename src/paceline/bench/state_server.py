"""What a query costs the State Server: a real process, a connection for each registered worker, all of which ask."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from threading import Thread
from time import perf_counter

import msgspec
from msgspec import Struct

from paceline.nodes import Coordinator, Job, NodeError, StateServer
from paceline.nodes import messages as m
from paceline.nodes.coordinator import no_payload
from paceline.sync.models.esync import ESync
from paceline.sync.state_server import Began, Queried
from paceline.sync.state_server import StateServer as Machine
from paceline.wire import Address, Channel, Loop, SocketNetwork, WireError

SIZES = (10, 100, 1000)
QUERIES = 10_000
LONGEST = 60.0  # seconds for a batch
FAR = 3600.0  # seconds: nobody is to be missed while this is measured


class QueryRow(Struct):
    """`microseconds` of the server's processor for a query, with all that is read and sent for it, and of these the
    machine's that decides. `growth` is over the fewest workers."""

    workers: int
    microseconds: float
    machine_microseconds: float
    growth: float


def measure(repeats: int = 5, sizes: Sequence[int] = SIZES, queries: int = QUERIES) -> Iterator[QueryRow]:
    least = None
    for workers in sizes:
        whole = served(workers, queries, repeats)
        least = least or whole
        yield QueryRow(workers, whole * 1e6, decided(workers, queries, repeats) * 1e6, whole / least)


def served(workers: int, queries: int, repeats: int) -> float:
    """Seconds of processor time that a query takes of a State Server with so many workers, median of the repeats."""
    job = Job(workers=workers, sync="esync", silence=FAR, start_within=FAR)
    network = SocketNetwork()
    coordinator = Coordinator(job, network)
    address = coordinator.start()
    thread = Thread(target=_run, args=(coordinator,), daemon=True)
    thread.start()
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe()
    process = context.Process(target=serve, args=(msgspec.json.encode((job, address)), there), daemon=True)
    process.start()
    try:
        there.close()
        crowd = Crowd(job, network, msgspec.json.decode(here.recv_bytes(), type=Address))
        crowd.ask(workers + queries // 10)  # everyone once, and to warm up
        taken = []
        for _ in range(repeats):
            before = on_processor(process.pid)
            crowd.ask(queries)
            taken.append((on_processor(process.pid) - before) / queries)
        crowd.loop.close()
        return median(taken)
    finally:
        process.kill()
        process.join()
        coordinator.stop(NodeError("the measurement is over"))
        thread.join()
        coordinator.close()


def decided(workers: int, queries: int, repeats: int) -> float:
    """Seconds that the machine alone takes."""
    machine, draw, taken = Machine(ESync(), workers), random.Random(1), []
    for worker in range(workers):
        machine.handle(Began(worker, 0), 0.0)
    asked = [Queried(draw.randrange(workers), 1, draw.uniform(0.01, 1.0), 0.0) for _ in range(queries)]
    for _ in range(repeats):
        begin = perf_counter()
        for query in asked:
            machine.handle(query, 0.0)
        taken.append((perf_counter() - begin) / queries)
    return median(taken)


class Crowd:
    """All workers of a run, each with its own connection, in one loop."""

    def __init__(self, job: Job, network: SocketNetwork, address: Address) -> None:
        self.loop = Loop()
        self._draw = random.Random(0)
        self._channels: list[Channel] = []
        self._left = self._open = 0
        for worker in range(job.workers):
            hello = m.encode(m.WorkerHello(worker, os.getpid(), 0))
            channel = network.connect(address, hello, job.digest(), self.loop.clock() + LONGEST)
            channel.sink = no_payload
            self.loop.add(channel, lambda channel, _: self._answered(channel), self._closed)
            channel.send(m.encode(m.RoundBegan(0)))
            self._channels.append(channel)

    def ask(self, queries: int) -> None:
        """So many queries of all together, each sent when the same worker has its last answer."""
        self._left = queries
        for channel in self._channels:
            self._ask(channel)
        self.loop.run(lambda: not self._left and not self._open, self.loop.clock() + LONGEST)

    def _ask(self, channel: Channel) -> None:
        if self._left:
            self._left -= 1
            self._open += 1
            channel.send(m.encode(m.Query(0, 1, self._draw.uniform(0.01, 1.0))))

    def _answered(self, channel: Channel) -> None:
        self._open -= 1
        self._ask(channel)

    def _closed(self, channel: Channel, error: WireError) -> None:
        if self._open:
            raise NodeError(f"{channel.peer}: {error.why}")


def serve(setting: bytes, says: Connection) -> None:
    """The process that is measured."""
    job, coordinator = msgspec.json.decode(setting, type=tuple[Job, Address])
    state_server = StateServer(job, SocketNetwork())
    Thread(target=_tell_address, args=(state_server, says), daemon=True).start()
    state_server.run(coordinator)


def _tell_address(state_server: StateServer, says: Connection) -> None:
    says.send_bytes(msgspec.json.encode(state_server.address(LONGEST)))


def on_processor(pid: int | None) -> float:
    """Seconds that a process has been on a processor."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _run(coordinator: Coordinator) -> None:
    with suppress(NodeError):
        coordinator.run()
