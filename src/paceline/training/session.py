"""This process's place in a run. One process is one worker, so there is one of these at most.

A launcher of ours sets it; otherwise it is found in the environment when it is first asked for.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Protocol, TypeVar

import torch
from msgspec import Struct
from torch import distributed as dist

from paceline.launch.environment import Place, resolve
from paceline.launch.node import LIMITS
from paceline.launch.run_file import RunFile
from paceline.nodes import NodeError, Snapshot, Traffic, Worker, WrongRequest
from paceline.params import Optimizer, Space
from paceline.slowness import Delays
from paceline.sync import Model, parse
from paceline.training.group import Group, join
from paceline.wire import SocketNetwork

EVERY = 0.2  # seconds between two reports
LAST = 1000  # rounds
AnyWorker = TypeVar("AnyWorker", bound=Worker)


class Progress(Struct, frozen=True, tag=True):
    """How far a worker is, and what it spent its time on so far, in seconds."""

    iteration: int
    steps: int
    computing: float
    waiting: float
    samples: int | None = None
    held_for: dict[int, int] = {}  # by worker: how often a pull was held for it
    sent: int = 0  # bytes of gradients
    received: int = 0  # bytes of parameters
    saved: int = 0  # bytes of gradients that a codec made unnecessary
    rounds: int = 0  # how often parameters came; under esync a round has several steps
    blocked: float = 0.0  # seconds at the end of a round, median of the last ones


class Measurement(Struct, frozen=True, tag=True):
    """How good the model was, so many seconds after the first step was possible."""

    accuracy: float
    seconds: float


class Member(Protocol):
    """What takes part in a run: a worker of the servers, or a member of DDP's group."""

    @property
    def traffic(self) -> Traffic: ...
    @property
    def iteration(self) -> int: ...
    @property
    def held_for(self) -> Mapping[int, int]: ...
    def close(self, *, well: bool = True) -> None: ...


class Session:
    """`report` is told of progress now and then, and of every measurement."""

    def __init__(
        self, place: Place, run: RunFile, report: Callable[[Progress | Measurement], None] | None = None
    ) -> None:
        self.rank = place.rank
        self.world_size = place.world_size
        self.batch_size: int | None = None  # of the loader that it trains from, once that is known
        self._run = run
        self._report = report
        self._folder = Path(place.run) if Path(place.run).is_dir() else Path(place.run).parent
        self._member: Member | None = None
        self._delays = Delays(run.slow, "worker", place.rank, run.job.seed)
        self._began = self._reported = monotonic()
        self._left = False
        self._before_leaving: list[Callable[[], None]] = []
        self._steps = 0
        self._computing = self._waiting = 0.0
        self._rounds = 0
        self._blocked: deque[float] = deque(maxlen=LAST)

    def join(
        self,
        space: Space,
        dtype: torch.dtype,
        optimizer: Optimizer,
        first: Snapshot,
        *,
        kind: type[AnyWorker],
        in_place: bool = False,
    ) -> AnyWorker:
        """Take part in the run; returns when its first parameters are here, or where they can be read `in_place`."""
        self._check_new()
        network = SocketNetwork(wire=self._run.wire, token=self._run.token, limits=LIMITS)
        shapes = {tensor.name: tensor.shape for tensor in space.tensors}
        worker = kind(
            self._run.job, network, shapes, number=self.rank, dtype=dtype, optimizer=optimizer, in_place=in_place
        )
        self._member = worker
        worker.start(self._run.coordinator, first)
        self.begin()
        return worker

    def gather(self) -> Group:
        """Take part in a run under `ddp`; returns when all workers are there."""
        self._check_new()
        self._member = group = Group(self._run.job, self.rank, self._folder)
        group.start()
        return group

    def group(self, backend: str) -> dist.ProcessGroup:
        """All workers, for torch's own collectives: the group that the script has made, or a new one."""
        if not dist.is_initialized():
            join(backend, self.rank, self.world_size, self._folder, self._run.job.start_within)
            self._before_leaving.append(dist.destroy_process_group)
        group = dist.group.WORLD
        assert group is not None
        size = dist.get_world_size(group)
        if size != self.world_size:
            raise WrongRequest(f"the script's process group has {size} members, and the run {self.world_size} workers")
        return group

    @property
    def model(self) -> Model:
        """The synchronization model that the run begins with."""
        return parse(self._run.job.sync)

    def begin(self) -> None:
        """From now on a step is possible."""
        self._began = monotonic()

    @property
    def by_ddp(self) -> bool:
        """Do the workers keep together by DDP, without servers?"""
        return self._run.job.by_ddp

    @property
    def failure(self) -> NodeError | None:
        """Under `ddp`: why the run cannot go on, whatever torch has raised in the script."""
        return self._member.failure if isinstance(self._member, Group) else None

    def end(self, why: NodeError) -> None:
        """Under `ddp`, where no coordinator would say it: the run is over, and the next step raises why."""
        if isinstance(self._member, Group):
            self._member.end(why)

    @property
    def joined(self) -> bool:
        """Has it taken part?"""
        return self._member is not None

    def slow_down(self, computed: float) -> None:
        """Where slowness was asked for: wait as if the step had taken longer to compute."""
        now = monotonic()
        more = self._delays.after(computed, now - self._began)
        if more > 0:
            sleep(more)

    def went_on(self, computed: float, waited: float, blocked: float | None) -> None:
        """A step is over; so many seconds each. It was the last of a round if it was `blocked` for parameters."""
        self._steps += 1
        if blocked is not None:
            self._rounds += 1
            self._blocked.append(blocked)
        self._computing += computed
        self._waiting += waited
        now = monotonic()
        if self._report is not None and now - self._reported >= EVERY:
            self._reported = now
            self._report(self.progress())

    def measured(self, accuracy: float) -> None:
        """The script has found out how good its model is."""
        if self._report is not None and self.joined:
            self._report(Measurement(accuracy, monotonic() - self._began))

    def progress(self) -> Progress:
        member = self._member
        iteration, traffic = (0, Traffic()) if member is None else (member.iteration, member.traffic)
        samples = None if self.batch_size is None else self.batch_size * self._steps
        held_for = {} if member is None else dict(member.held_for)
        return Progress(
            iteration,
            self._steps,
            self._computing,
            self._waiting,
            samples,
            held_for,
            traffic.sent,
            traffic.received,
            traffic.saved,
            self._rounds,
            median(self._blocked or [0.0]),
        )

    def before_leaving(self, call: Callable[[], None]) -> None:
        """Something that has to be finished while the run is still on."""
        self._before_leaving.append(call)

    def settle(self) -> None:
        """Finish what has to be finished."""
        while self._before_leaving:
            self._before_leaving.pop()()

    def leave(self, *, well: bool = True) -> None:
        """The script is over. If it did not end well, the others see this worker die."""
        if self._member is None or self._left:
            return
        self._left = True
        if self._report is not None:
            self._report(self.progress())
        self._member.close(well=well)

    def _check_new(self) -> None:
        if self._member is not None:
            raise WrongRequest("this process takes part already; put all parameters into one optimizer, in groups")


_current: Session | None = None


def session() -> Session | None:
    """This process's place, from the environment if nobody has set it. None: it trains alone."""
    global _current
    if _current is None:
        place = resolve(os.environ)
        if place is not None:
            _current = Session(place, RunFile.read(place.run))
            atexit.register(_leave_at_exit, _current)
    return _current


def set_session(current: Session | None) -> None:
    global _current
    _current = current


def _leave_at_exit(current: Session) -> None:
    current.settle()
    current.leave(well=not hasattr(sys, "last_value"))
