"""One node as a process.

What it has to say goes through a pipe to whoever started it, as JSON: the coordinator's address, what a worker's
program wants to be known, and at the end its result or the error that ended the node. The exit status is 0 only if it
ended well. When the other end of its leash, a second pipe, is closed, whoever started the run is gone; the coordinator
then ends it for all.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import msgspec
import torch
from msgspec import Struct

from paceline.nodes import Coordinator, Job, LocalWorker, NodeError, PeerLost, Server, StateServer, Worker
from paceline.slowness import Delays, Slowness
from paceline.wire import Address, Limits, SocketNetwork, WireError

LIMITS = Limits(payload=1 << 40)  # slices are as large as the model makes them; nodes check sizes against its own
Wire = Literal["auto", "tcp", "shared-memory"]


class Listening(Struct, frozen=True, tag=True):
    """The coordinator is up."""

    address: Address


class Said(Struct, frozen=True, tag=True):
    """Something that a worker's program wants to be known."""

    value: Any


class Result(Struct, frozen=True, tag=True):
    """The last line of a node: what its program returned, or what ended it."""

    value: Any = None
    kind: str | None = None
    words: str = ""


Line = Listening | Said | Result


class Seat(Struct, frozen=True, kw_only=True):
    """Which node of which run this process is."""

    role: Literal["coordinator", "server", "state server", "worker"]
    job: Job
    number: int = 0
    coordinator: Address | None = None
    wire: Wire = "auto"
    port: int = 0  # of the coordinator; 0: any that is free
    token: str | None = None
    trace: str | None = None
    program: str = ""  # of a worker: "module:function", called with its post
    arguments: dict[str, Any] = {}
    threads: int = 1
    cores: tuple[int, ...] = ()  # that it may use; none: all
    paths: tuple[str, ...] = ()  # where modules are looked for first
    slow: tuple[Slowness, ...] = ()  # of a server: how it is slowed down on purpose


class Post:
    """A seat that is taken: the node that this process is."""

    def __init__(self, seat: Seat, says: Connection, leash: Connection) -> None:
        self.seat = seat
        self.job = seat.job
        self.number = seat.number
        self.arguments = seat.arguments
        self._says = says
        self._leash = leash
        port = seat.port if seat.role == "coordinator" else 0
        self._network = SocketNetwork(wire=seat.wire, token=seat.token, limits=LIMITS, port=port)

    @property
    def coordinator(self) -> Address:
        assert self.seat.coordinator is not None
        return self.seat.coordinator

    def worker(self, shapes: Mapping[str, Sequence[int]], **options: Any) -> Worker:
        """The worker that this process is."""
        return Worker(self.job, self._network, shapes, number=self.number, **options)

    def local_worker(self, shapes: Mapping[str, Sequence[int]], **options: Any) -> LocalWorker:
        """The same, under esync."""
        return LocalWorker(self.job, self._network, shapes, number=self.number, **options)

    def say(self, value: Any) -> None:
        """Tell whoever started the run."""
        self.tell(Said(value))

    def tell(self, line: Line) -> None:
        with suppress(OSError):  # nobody listens any more
            self._says.send_bytes(msgspec.json.encode(line))

    def when_let_go(self, call: Callable[[], None]) -> None:
        """To be called, on a thread of its own, when whoever started the run is gone or has had enough of it."""

        def watch() -> None:
            with suppress(EOFError, OSError):
                self._leash.recv_bytes()  # nothing is ever sent: it ends when the other end does
            call()

        Thread(target=watch, name="paceline-watch", daemon=True).start()

    def run(self) -> Any:
        """Be that node until the run is over."""
        sys.path[:0] = self.seat.paths
        torch.set_num_threads(self.seat.threads)
        if self.seat.cores:
            os.sched_setaffinity(0, self.seat.cores)
        match self.seat.role:
            case "coordinator":
                return self._coordinate()
            case "server":
                return self._serve()
            case "state server":
                return self._answer_queries()
        module, _, function = self.seat.program.partition(":")
        program: Callable[[Post], Any] = getattr(import_module(module), function)
        return program(self)

    def _coordinate(self) -> None:
        coordinator = Coordinator(self.job, self._network)
        try:
            self.tell(Listening(coordinator.start()))
            self.when_let_go(lambda: coordinator.stop(PeerLost("whoever started the run is gone")))
            coordinator.run()
        finally:
            coordinator.close()

    def _serve(self) -> dict[str, Any] | None:
        trace = None if self.seat.trace is None else Path(self.seat.trace)
        delays = Delays(self.seat.slow, "server", self.number, self.job.seed)
        late = partial(delays.after, 0.0) if delays else None
        server = Server(self.job, self.number, self._network, trace=trace, late=late)
        try:
            server.run(self.coordinator)
        finally:
            server.close()
        return {"lost_residual": server.lost_residual} if server.lost_residual else None

    def _answer_queries(self) -> None:
        state_server = StateServer(self.job, self._network)
        try:
            state_server.run(self.coordinator)
        finally:
            state_server.close()


def main(seat: bytes, says: Connection, leash: Connection, log: str) -> None:
    """What the process runs. Ctrl-C is for whoever started the run; output goes to the log.

    It is in a group of its own for that, and not in a session: Linux may share the time out between sessions first, and
    then nodes could not yield a core to each other.
    """
    os.setpgrp()
    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    post = Post(msgspec.json.decode(seat, type=Seat), says, leash)
    try:
        post.tell(Result(post.run()))
    except (NodeError, WireError) as error:
        post.tell(Result(kind=error.kind, words=str(error)))
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        post.tell(Result(kind="failed", words=f"{type(error).__name__}: {error}"))
        sys.exit(1)
