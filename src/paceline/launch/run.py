"""A script on this machine, as a run: its nodes started, watched and ended together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty
from time import monotonic
from typing import Literal

import msgspec
from msgspec import Struct

from paceline.launch.cores import Cores
from paceline.launch.local import STATE_SERVER, LocalCluster, News, log_file
from paceline.launch.node import Result, Said, Wire
from paceline.nodes import Job, NodeError, PeerLost, ScriptFailed, WrongRequest, error_of
from paceline.nodes.encoding import add_norms
from paceline.slowness import Slowness
from paceline.training.session import Measurement, Progress

PROGRAM = "paceline.launch.script:run"
LEAVE = 3.0  # seconds for all nodes to end by themselves once the run is over
TICK = 0.1  # seconds between two looks at what the nodes say


class Wrote(Struct, frozen=True):
    """A worker has written a line."""

    worker: int
    line: str


class Reported(Struct, frozen=True):
    """A worker has said how far it is."""

    worker: int
    progress: Progress


class Measured(Struct, frozen=True):
    """A worker has said how good the model is, so many seconds after the first step was possible."""

    worker: int
    accuracy: float
    seconds: float


Update = Wrote | Reported | Measured


class WorkerSummary(Struct, frozen=True):
    """What became of one worker. `waiting` is the share of its time that it waited for parameters."""

    worker: int
    iterations: int
    computing_s: float
    waiting_s: float
    waiting: float
    samples: int | None
    held_for: dict[int, int]
    sent: int = 0  # bytes of gradients
    received: int = 0  # bytes of parameters
    saved: int = 0  # bytes of gradients that the codec made unnecessary
    rounds: int = 0  # under esync a round has several iterations
    blocked_s: float = 0.0  # at the end of a round, until parameters came; median


class Summary(Struct, frozen=True):
    """How a run ended. `lost_residual` has, for workers that have left, the norm of what their codec held back."""

    folder: str
    sync: str
    seconds: float
    iterations: int
    iterations_per_s: float
    workers: list[WorkerSummary]
    lost: list[str]
    error: str | None = None
    codec: str = "none"
    sent: int = 0
    saved: int = 0
    lost_residual: dict[int, float] = {}


class ScriptRun:
    """`updates()` drives it to its end; what it was is in `summary` then. Raises nothing of what went wrong in it.

    with ScriptRun(job, Path("train.py"), ["--lr", "0.1"], folder) as run:
        for update in run.updates():
            ...
    """

    def __init__(
        self,
        job: Job,
        script: Path,
        arguments: Sequence[str],
        folder: Path,
        *,
        slow: Sequence[Slowness] = (),
        wire: Wire = "auto",
        port: int = 0,
        cores: Cores | None = None,
    ) -> None:
        if not script.is_file():
            raise WrongRequest(f"there is no script {str(script)!r}; give the path of a Python file")
        self.job = job
        self.folder = folder
        self.error: NodeError | None = None
        self.lost: list[str] = []  # workers that were killed, or the State Server; the others went on
        self.progress: dict[int, Progress] = {}
        self._lost_residual: dict[int, float] = {}
        self._news: News = News()
        self._cluster = LocalCluster(
            job,
            PROGRAM,
            {"script": str(script), "argv": list(arguments), "folder": str(folder)},
            wire=wire,
            port=port,
            traces=folder,
            folder=folder,
            slow=slow,
            cores=cores,
            paths=(str(script.resolve().parent),),
            news=self._news,
        )
        self._logs = {number: _Tail(log_file(folder, f"worker {number}")) for number in range(job.workers)}
        self._began = monotonic()
        self._ended = 0.0
        self._deadline: float | None = None  # for everyone to leave
        self._weight = 0  # of the error
        self._state_server: Literal["up", "ended", "failed", "killed"] = "up"  # up to where the run is over

    def __enter__(self) -> ScriptRun:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._cluster.__enter__()
        self._began = monotonic()
        return self

    def __exit__(self, *exception: object) -> None:
        self._cluster.close()

    def updates(self) -> Iterator[Update]:
        """What happens, until all nodes have ended."""
        running = set(self._cluster.names)
        silent = {name for name in running if name.startswith("worker")}  # not said how they ended
        while running and (self._deadline is None or monotonic() < self._deadline):
            try:
                name, line = self._news.get(timeout=TICK)
            except Empty:
                yield from self._written()
                continue
            if line is None:
                running.discard(name)
                if name in silent and (self._deadline is None or self.error is not None):
                    self.lost.append(name)
            if name == STATE_SERVER:
                self._heard_of_state_server(line)
            elif name.startswith("worker"):
                yield from self._said(int(name.split()[1]), line)
            elif isinstance(line, Result) and line.value is not None and name.startswith("server"):
                add_norms(self._lost_residual, {int(w): norm for w, norm in line.value["lost_residual"].items()})
            if isinstance(line, Result) and name != STATE_SERVER:
                silent.discard(name)
                if self._is_the_end(name, line):
                    self.end()
        if self._state_server == "killed" or (self._state_server == "failed" and self.error is None):
            self.lost.append(STATE_SERVER)
        self._ended = monotonic()
        yield from self._written()

    def end(self) -> None:
        """End it before its time. `updates` goes on until it is over; what nodes say about it is no error."""
        if self._deadline is None:
            self._deadline = monotonic() + LEAVE
            self._cluster.let_go()

    def wrong(self) -> str | None:
        """What ended the run, if that was an error. Others notice that a worker is gone, but not why."""
        killed = [name for name in self.lost if name != STATE_SERVER]
        if isinstance(self.error, PeerLost) and killed:
            return f"killed, perhaps by the system for want of memory: {', '.join(killed)}; {self.error}"
        return None if self.error is None else str(self.error)

    def summary(self) -> Summary:
        seconds = (self._ended or monotonic()) - self._began
        workers = [_summary(number, progress) for number, progress in sorted(self.progress.items())]
        iterations = sum(worker.iterations for worker in workers)
        rate = iterations / max(seconds, 1e-9)
        return Summary(
            str(self.folder),
            self.job.sync,
            seconds,
            iterations,
            rate,
            workers,
            self.lost,
            self.wrong(),
            self.job.codec,
            sum(worker.sent for worker in workers),
            sum(worker.saved for worker in workers),
            self._lost_residual,
        )

    def _heard_of_state_server(self, line: object) -> None:
        """The last that is heard of it is that it has ended, and before that, how, unless it was killed.

        The run goes on without it. If that fails, it is what made the State Server fail, as far as can be told.
        """
        if self._deadline is None and self._state_server == "up":
            if isinstance(line, Result):
                self._state_server = "ended" if line.kind is None else "failed"
            elif line is None:
                self._state_server = "killed"

    def _said(self, worker: int, line: object) -> Iterator[Update]:
        yield from self._written()
        said = line.value if isinstance(line, Said) else None
        if isinstance(line, Result) and line.value is not None:
            said = line.value["progress"]
        if said is None:
            return
        news = msgspec.convert(said, Progress | Measurement, strict=False)
        if isinstance(news, Measurement):
            yield Measured(worker, news.accuracy, news.seconds)
        else:
            self.progress[worker] = news
            yield Reported(worker, news)

    def _is_the_end(self, name: str, result: Result) -> bool:
        """Does the run end with this? The first error is the one to tell, unless one nearer to the cause comes."""
        if self._deadline is not None and self.error is None:
            return False  # it was told to
        error = None if result.kind is None else error_of(result.kind, result.words)
        if error is None and name.startswith("worker") and not result.value["joined"]:
            error = ScriptFailed(
                f"{name} has ended without a paceline.Optimizer; wrap the script's optimizer: "
                "opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), lr=0.1))"
            )
        if error is not None and (self.error is None or _weight(name, error) > self._weight):
            self.error, self._weight = error, _weight(name, error)
        return error is not None

    def _written(self) -> Iterator[Wrote]:
        for worker, log in self._logs.items():
            for line in log.lines():
                yield Wrote(worker, line)


def _weight(name: str, error: NodeError) -> int:
    """How near to the cause this is: a script's own mistake, then a worker's, then what others noticed of it."""
    if isinstance(error, ScriptFailed):
        return 2
    return int(name.startswith("worker") and not isinstance(error, PeerLost))


class _Tail:
    """The whole lines of a file that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""

    def lines(self) -> list[str]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
        except FileNotFoundError:
            return []
        self._read += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        return [line.decode(errors="replace").rstrip("\r") for line in whole]


def _summary(worker: int, progress: Progress) -> WorkerSummary:
    total = progress.computing + progress.waiting
    return WorkerSummary(
        worker,
        progress.steps,
        progress.computing,
        progress.waiting,
        progress.waiting / total if total else 0.0,
        progress.samples,
        progress.held_for,
        progress.sent,
        progress.received,
        progress.saved,
        progress.rounds,
        progress.blocked,
    )
