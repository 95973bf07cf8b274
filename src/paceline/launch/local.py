"""A whole run on this machine: coordinator, servers and workers as processes, ended when this ends.

They are forked off a process that has torch loaded already, so that a node starts in milliseconds and not in seconds.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from paceline.launch.cores import Cores, assign
from paceline.launch.node import Line, Listening, Result, Said, Seat, Wire, main
from paceline.launch.run_file import MEETING, RunFile
from paceline.nodes import Job, NodeError, PeerLost, StartFailed, WaitedTooLong, error_of
from paceline.slowness import Slowness
from paceline.wire import Address

STATE_SERVER = "state server"


class Ended(Struct, frozen=True):
    """How a process ended."""

    name: str
    status: int
    value: Any = None
    error: NodeError | None = None
    log: str = ""


News = SimpleQueue[tuple[str, Line | None]]  # who has said what; None: it has ended


class _Process:
    """A node's process, and a thread that listens to what it says: for `next`, or for `news` if there is such."""

    def __init__(self, name: str, seat: Seat, folder: Path, news: News | None) -> None:
        self.name = name
        self._news = news
        self._log = log_file(folder, name)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["paceline.launch.node"])
        self._says, says = context.Pipe(duplex=False)
        leash, self.leash = context.Pipe(duplex=False)
        arguments = (msgspec.json.encode(seat), says, leash, str(self._log))
        self.process = context.Process(target=main, args=arguments, name=name, daemon=True)
        self.process.start()
        says.close()
        leash.close()
        self._said: SimpleQueue[Line | None] = SimpleQueue()
        self._result = Result(kind="lost", words=f"{name} was killed")
        self._listener = Thread(target=self._listen, name=f"listens to {name}", daemon=True)
        self._listener.start()

    def next(self, timeout: float) -> Line | None:
        """The next thing it says; None if it has ended."""
        try:
            return self._said.get(timeout=timeout)
        except Empty:
            raise WaitedTooLong(f"{self.name} said nothing for {timeout:g} s") from None

    def ended(self) -> Ended:
        """To be called when it has ended."""
        self._listener.join()
        result = self._result
        error = None if result.kind is None else error_of(result.kind, result.words)
        return Ended(self.name, self.process.exitcode or 0, result.value, error, self.log())

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self._listener.join()
        self.process.close()
        self._says.close()
        self.leash.close()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                line = msgspec.json.decode(self._says.recv_bytes(), type=Line)
                if isinstance(line, Result):
                    self._result = line
                self._tell(line)
        self._tell(None)

    def _tell(self, line: Line | None) -> None:
        if self._news is None:
            if not isinstance(line, Result):
                self._said.put(line)
            return
        if line is None or isinstance(line, Listening):  # whoever waits for it to start
            self._said.put(line)
        if not isinstance(line, Listening):
            self._news.put((self.name, line))


class LocalCluster:
    """Every worker calls `program`, a "module:function", with its `Post`; what that returns is its result.

    with LocalCluster(job, "my_package.my_module:train") as cluster:
        ended = cluster.wait(timeout=60)

    Without a program no worker is started; others may join. `folder` is where logs and the file about the run go, and
    stay; else they are gone when the run is. What nodes say goes to `news` if that is given. `paths` are where modules
    are looked for first, `port` is the coordinator's.
    """

    def __init__(
        self,
        job: Job,
        program: str,
        arguments: dict[str, Any] | None = None,
        *,
        wire: Wire = "auto",
        port: int = 0,
        traces: Path | None = None,
        folder: Path | None = None,
        slow: Sequence[Slowness] = (),
        cores: Cores | None = None,
        paths: Sequence[str] = (),
        news: News | None = None,
    ) -> None:
        self.job = job
        self._wire: Wire = wire
        self._slow = tuple(slow)
        self._news = news
        self._cores = cores or assign((), job.workers, job.servers)
        self._seat = Seat(
            role="worker", job=job, program=program, arguments=arguments or {}, wire=wire, port=port, paths=tuple(paths)
        )
        self._traces = traces
        self._folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._processes: dict[str, _Process] = {}
        self._address: Address | None = None

    def __enter__(self) -> LocalCluster:
        if self._folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="paceline-")
            self._folder = Path(self._temporary.name)
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def pid(self, name: str) -> int:
        return self._processes[name].process.pid or 0

    @property
    def names(self) -> list[str]:
        return list(self._processes)

    @property
    def address(self) -> Address:
        assert self._address is not None
        return self._address

    def start_worker(self, number: int, name: str | None = None, arguments: dict[str, Any] | None = None) -> None:
        """Start a worker, at the beginning or later on, for its program with the same or other arguments."""
        cores, threads = self._cores.workers[number % self.job.workers], self._cores.threads
        seat = replace(self._seat, number=number, coordinator=self._address, cores=cores, threads=threads)
        if arguments is not None:
            seat = replace(seat, arguments=arguments)
        self._start_process(name or f"worker {number}", seat)

    def said(self, name: str, timeout: float) -> Any:
        """The next thing that a worker's program has said."""
        line = self._processes[name].next(timeout)
        if not isinstance(line, Said):
            raise PeerLost(f"{name} has ended: {self._processes[name].log()}")
        return line.value

    def kill(self, name: str) -> None:
        """End a process as a crash would."""
        self._processes[name].process.kill()

    def let_go(self) -> None:
        """Close the pipes to the processes, as if this process had ended."""
        for process in self._processes.values():
            process.leash.close()

    def wait(self, timeout: float | None) -> dict[str, Ended]:
        """Until every process has ended. What is left after the timeout is killed, and named in an error."""
        deadline = None if timeout is None else monotonic() + timeout
        late = []
        for name, process in self._processes.items():
            process.process.join(None if deadline is None else max(0.0, deadline - monotonic()))
            if process.process.is_alive():
                late.append(name)
        if late:
            logs = "".join(f"\n{name}: {self._processes[name].log()}" for name in late)
            for process in self._processes.values():
                process.process.kill()
            raise WaitedTooLong(f"after {timeout:g} s still running: {', '.join(late)}{logs}")
        return {name: process.ended() for name, process in self._processes.items()}

    def close(self) -> None:
        for process in self._processes.values():
            process.process.kill()
        for process in self._processes.values():
            process.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _start(self) -> None:
        self._address = Address() if self.job.by_ddp else self._start_coordinator()
        assert self._folder is not None
        RunFile(job=self.job, coordinator=self._address, wire=self._wire, slow=self._slow).write(self._folder)
        (self._folder / MEETING).unlink(missing_ok=True)  # of another run in the same folder
        if not self.job.by_ddp:
            self._start_servers()
        for number in range(self.job.workers if self._seat.program else 0):
            self.start_worker(number)

    def _start_coordinator(self) -> Address:
        coordinator = self._start_process("coordinator", replace(self._seat, role="coordinator"))
        first = coordinator.next(self.job.start_within)
        if not isinstance(first, Listening):
            raise StartFailed(f"the coordinator did not start: {coordinator.ended().error or coordinator.log()}")
        return first.address

    def _start_servers(self) -> None:
        for number in range(self.job.servers):
            trace = None if self._traces is None else str(self._traces / f"server-{number}.trace")
            seat = replace(self._seat, role="server", number=number, coordinator=self._address, trace=trace)
            seat = replace(seat, slow=self._slow, cores=self._cores.servers[number])
            self._start_process(f"server {number}", seat)
        if self.job.asks:
            self._start_process(STATE_SERVER, replace(self._seat, role="state server", coordinator=self._address))

    def _start_process(self, name: str, seat: Seat) -> _Process:
        assert self._folder is not None
        process = self._processes[name] = _Process(name, seat, self._folder, self._news)
        return process


def log_file(folder: Path, name: str) -> Path:
    """Where the output of a node goes."""
    return folder / f"{name.replace(' ', '-')}.log"
