"""A cluster in one thread, for tests: real shards and real workers' machines, and links that deliver in any order.

Each link keeps its own order, as a connection does; which link moves next, or which worker finishes computing, is
chosen from outside. So a test explores every interleaving that the real system could show, and a list of choices
replays one. Workers that have done their iterations leave, so a run ends by itself; if it ends with someone waiting,
that is a deadlock, and `run` says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from paceline.sync import (
    Command,
    Drop,
    Event,
    Grant,
    InvariantViolated,
    Joined,
    Left,
    Model,
    Pulled,
    Pushed,
    SetModel,
    SetTimer,
    Shard,
    TimerFired,
)
from paceline.sync.invariants import Watch, nothing_waits_in_vain
from paceline.sync.partial_pull import SetPullTimer, Start
from paceline.sync.worker import Worker

STEPS = 20_000  # far more than any run of these tests needs

Choose = Callable[[int], int]  # picks one of n
Action = Callable[[], None]


class Handles(Protocol):
    def handle(self, event: Event, now: float) -> list[Command]: ...


def watched(models: Sequence[Model | str], workers: int, seed: int = 0) -> list[Handles]:
    """One shard for each model, under watch, the first of which plans."""
    return [Watch(Shard(model, workers, seed, index=index)) for index, model in enumerate(models)]


class Cluster:
    """Workers and shards, and whatever is under way between them."""

    def __init__(
        self,
        shards: Sequence[Handles],
        workers: int,
        iterations: int,
        choose: Choose,
        *,
        b: float = 1.0,
        tau: float = 0.0,
        significance: Callable[[int, int], float] = lambda worker, iteration: 0.0,
    ) -> None:
        self.shards = shards
        self.now = 0.0
        self.done = 0  # how many workers have done all their iterations
        self._choose = choose
        self._iterations = iterations
        self._b, self._tau = b, tau
        self._significance = significance
        self._lives: dict[int, int] = {}
        self._workers: dict[int, Worker] = {}
        self._computing: dict[int, None] = {}
        self._to_shard: dict[tuple[int, int, int], deque[Event]] = {}  # worker, incarnation (-1: coordinator), shard
        self._to_worker: dict[tuple[int, int, int], deque[Grant]] = {}
        self._timers: list[tuple[float, Action]] = []
        self.finished: list[int] = []
        for worker in range(workers):
            self._enter(worker, 0)

    # Faults.

    def kill(self, worker: int) -> None:
        """A worker dies; what it sent is still under way, and each shard hears of it in its own time."""
        self._workers.pop(worker)
        self._computing.pop(worker, None)
        for shard in range(len(self.shards)):
            self._send(worker, -1, shard, Left(worker, self._lives[worker]))

    def restart(self, worker: int) -> None:
        """A worker comes back as another incarnation, which may be noticed before its death is."""
        self._enter(worker, self._lives[worker] + 1, announce=True)

    def set_model(self, model: Model | str, shards: Sequence[int] | None = None) -> None:
        for shard in range(len(self.shards)) if shards is None else shards:
            self._send(-1, -1, shard, SetModel(model))

    def repeat(self, link: int) -> None:
        """A message is sent again, as after a broken connection: it arrives a second time, right after the first."""
        links = [queue for (_, life, _), queue in self._to_shard.items() if queue and life >= 0]
        if links:
            queue = links[link % len(links)]
            queue.appendleft(queue[0])

    @property
    def alive(self) -> list[int]:
        return list(self._workers)

    @property
    def dead(self) -> list[int]:
        return [worker for worker in self._lives if worker not in self._workers and worker not in self.finished]

    # Running.

    def step(self) -> bool:
        """Let one thing happen; False if nothing can."""
        actions: list[Action] = []
        for key, queue in self._to_shard.items():
            if queue:
                actions.append(lambda key=key: self._deliver(key))  # type: ignore[misc]
        for key, grants in self._to_worker.items():
            if grants:
                actions.append(lambda key=key: self._answer(key))  # type: ignore[misc]
        for worker in self._computing:
            actions.append(lambda worker=worker: self._computed(worker))  # type: ignore[misc]
        if not actions and not self._timers:
            return False
        picked = self._choose(len(actions) + len(self._timers))
        if picked < len(actions):
            self.now += 1.0
            actions[picked]()
        else:
            at, fire = self._timers.pop(picked - len(actions))
            self.now = max(self.now, at)
            fire()
        return True

    def run(self) -> None:
        """Go on until nothing can happen any more. Whoever still waits then waits for ever."""
        for _ in range(STEPS):
            if not self.step():
                break
        else:
            raise InvariantViolated(f"still busy after {STEPS} steps: it goes round in circles")
        nothing_waits_in_vain(shard for shard in self.shards if isinstance(shard, Watch))
        if self._workers:
            raise InvariantViolated(f"workers {sorted(self._workers)} never came to their end")

    # What happens.

    def _enter(self, worker: int, incarnation: int, *, announce: bool = False) -> None:
        self._lives[worker] = incarnation
        machine = Worker(worker, len(self.shards), incarnation=incarnation, b=self._b, tau=self._tau)
        self._workers[worker] = machine
        if announce:
            for shard in range(len(self.shards)):
                self._send(worker, incarnation, shard, Joined(worker, incarnation))
        for shard, message in machine.begin(self.now):
            self._send(worker, incarnation, shard, message)

    def _send(self, worker: int, incarnation: int, shard: int, event: Event) -> None:
        self._to_shard.setdefault((worker, incarnation, shard), deque()).append(event)

    def _deliver(self, key: tuple[int, int, int]) -> None:
        shard = key[2]
        self.handle(shard, self._to_shard[key].popleft())

    def handle(self, shard: int, event: Event) -> None:
        for command in self.shards[shard].handle(event, self.now):
            if isinstance(command, Grant):
                self._to_worker.setdefault((shard, command.worker, command.incarnation), deque()).append(command)
            elif isinstance(command, SetTimer):
                self._timers.append(
                    (command.at, lambda timer=command.timer: self.handle(shard, TimerFired(timer)))  # type: ignore[misc]
                )
            elif isinstance(command, Drop) and isinstance(event, Pushed | Pulled):
                self._check_drop(event, command)

    def _check_drop(self, event: Pushed | Pulled, drop: Drop) -> None:
        alive = event.worker in self._workers and self._lives[event.worker] == event.incarnation
        if alive and drop.reason.cause not in ("late", "repeat"):
            raise InvariantViolated(f"{event} of a live worker got {drop}")

    def _answer(self, key: tuple[int, int, int]) -> None:
        shard, worker, incarnation = key
        grant = self._to_worker[key].popleft()
        machine = self._workers.get(worker)
        if machine is not None and machine.incarnation == incarnation:
            self._decided(machine, machine.granted(shard, grant, self.now))

    def _decided(self, machine: Worker, commands: list[Start | SetPullTimer]) -> None:
        for command in commands:
            if isinstance(command, Start):
                if command.iteration >= self._iterations:
                    self._finish(machine.worker)
                else:
                    self._computing[machine.worker] = None
            else:
                fire = lambda timer=command.timer: self._pull_timer(machine, timer)  # noqa: E731
                self._timers.append((command.at, fire))

    def _pull_timer(self, machine: Worker, timer: int) -> None:
        if self._workers.get(machine.worker) is machine:
            self._decided(machine, machine.timer_fired(timer, self.now))

    def _computed(self, worker: int) -> None:
        del self._computing[worker]
        machine = self._workers[worker]
        messages, commands = machine.computed(self.now, self._significance(worker, machine.iteration))
        for shard, message in messages:
            self._send(worker, machine.incarnation, shard, message)
        self._decided(machine, commands)

    def _finish(self, worker: int) -> None:
        life = self._workers.pop(worker).incarnation
        self.finished.append(worker)
        for shard in range(len(self.shards)):
            self._send(worker, life, shard, Left(worker, life))
