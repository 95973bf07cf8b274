"""A cluster under faults, in virtual time.

A `Storm` drives the core's own machines, each under the eyes of a judge, through a `Plan`: workers compute, connections
carry their messages, the coordinator tells shards who is gone and which model holds, and faults strike. Every worker
has its iterations to do, some more while faults are ahead, and leaves then; so a run ends by itself. If it ends with
someone waiting, or does not end, or if a live worker's message is refused, that is a violation. One plan gives one run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any

from msgspec import Struct

from paceline.sim.faults.draw import Change, Fault, Plan
from paceline.sim.faults.links import Pipe
from paceline.sim.faults.lives import TICK, Life
from paceline.sim.faults.strikes import STRIKES
from paceline.sim.judge.judged import JudgedShard, JudgedStateServer
from paceline.sync import (
    Apply,
    Command,
    Drop,
    Event,
    Grant,
    InvariantViolated,
    Joined,
    Left,
    Pulled,
    Pushed,
    SetModel,
    SetTimer,
    Shard,
    TimerFired,
    parse,
)
from paceline.sync.invariants import nothing_waits_in_vain
from paceline.sync.local_steps import Answered
from paceline.sync.models.esync import ESync
from paceline.sync.state_server import Began

OnEvent = Callable[[int, float, Event, Sequence[Command]], None]  # shard, its time, event, commands

MOST = 100_000  # far more things than happen in any run that ends
NOTICE = 1.0  # within how many seconds the coordinator's word reaches a shard


class Outcome(Struct):
    """What a run has seen."""

    events: int  # that shards handled
    faults: Counter[str]  # those that had an effect, by kind
    resent: int  # messages that were sent again after a connection broke
    doubled: int  # messages that arrived twice
    lives: int


class Host:
    """A server's machine."""

    def __init__(self) -> None:
        self.frozen = -inf
        self.offset = 0.0
        self.slow = 0.0, -inf  # by how much its answers are late, and until when


class Storm:
    """Shards, workers, a coordinator and a State Server, and what is under way between them."""

    def __init__(self, plan: Plan, on_event: OnEvent | None = None, shard: type[Shard] = Shard) -> None:
        self.plan = plan
        self.now = 0.0
        self.random = Random(plan.seed + 1)
        self.hosts = [Host() for _ in range(plan.servers + 1)]
        workers = len(plan.paces)
        self.shards = [
            JudgedShard(shard(model, workers, plan.seed, index=index), workers, plan.seed)
            for index, model in enumerate(plan.models)
        ]
        first = parse(plan.models[0])
        self.esync = first if isinstance(first, ESync) else None
        self.is_esync = self.esync is not None  # is it in force?
        self.state_lost = False
        self._state = JudgedStateServer(self.esync, workers) if self.esync is not None else None
        self._asking = dict.fromkeys(range(workers), 0)  # the lives that the State Server knows
        self._ended: dict[int, int] = {}  # the last of each worker's that it was told the end of
        self._words = [
            Pipe(self, partial(self._hear, shard), partial(self._frozen, self.server_of(shard)))
            for shard in range(plan.shards)
        ]
        self.paces = dict(enumerate(plan.paces))
        self.lives: dict[tuple[int, int], Life] = {}
        self.newest: dict[int, Life] = {}
        self._starts: dict[tuple[int, int, int], int] = {}
        self._on_event = on_event
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._events = 0
        self._faults: Counter[str] = Counter()
        self.doubling: list[tuple[list[Pipe], int]] = []
        self._returning = 0  # how many workers are to be started again
        self.ahead = len(plan.faults)  # how many faults have not struck yet

    # Time.

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._agenda, (max(time, self.now), self._sequence, action))

    def run(self) -> Outcome:
        """To the end. Raises `InvariantViolated` if something is wrong."""
        for fault in self.plan.faults:
            self.at(fault.at, partial(self._strike, fault))
        for change in self.plan.changes:
            self.at(change.at, partial(self._change, change))
        for worker in range(len(self.plan.paces)):
            self.enter(worker, 0, None, announced=False)
        while self._agenda:
            self.now, _, action = heappop(self._agenda)
            action()
            if self._sequence > MOST:
                raise InvariantViolated(f"everyone_comes_to_the_end: still busy after {MOST} things have happened")
        self._check_end()
        return self._outcome()

    def _check_end(self) -> None:
        nothing_waits_in_vain(shard.watch for shard in self.shards)
        stuck = [f"worker {life.worker} at {life.machine.iteration}" for life in self.lives.values() if life.alive]
        if stuck:
            raise InvariantViolated(f"everyone_comes_to_the_end: nothing is under way, but waiting are {stuck}")

    def _outcome(self) -> Outcome:
        links = [link for life in self.lives.values() for link in life.links]
        self._faults["duplication"] += sum(
            sum(pipe.copied for pipe in pipes) > before for pipes, before in self.doubling
        )
        doubled = sum(link.there.copied for link in links)
        return Outcome(self._events, +self._faults, sum(link.resent for link in links), doubled, len(self.lives))

    # Who is where.

    def server_of(self, shard: int) -> int:
        return shard % self.plan.servers

    def shards_of(self, server: int) -> range:
        return range(server, self.plan.shards, self.plan.servers)

    def work(self, worker: int) -> float:
        """How long an iteration takes."""
        pace, jitter = self.paces[worker], self.plan.jitter
        return pace * (1 + jitter * self.random.uniform(-1, 1)) if jitter else pace

    def _frozen(self, server: int) -> float:
        return self.hosts[server].frozen

    # Lives.

    def enter(self, worker: int, incarnation: int, iteration: int | None, *, announced: bool = True) -> None:
        life = Life(self, worker, incarnation, iteration)
        self.lives[worker, incarnation] = self.newest[worker] = life
        life.begin(announced=announced)

    def reborn(self, life: Life) -> None:
        """It has found out that it counts as dead, and comes back as another."""
        life.end(lost=False)
        self.declare(life)
        self.enter(life.worker, life.incarnation + 1, None)

    def bring_back(self, life: Life, after: float) -> None:
        """A worker is started again as another incarnation, after so many seconds."""
        self._returning += 1
        self.at(self.now + after, partial(self._return, life))

    def _return(self, life: Life) -> None:
        self._returning -= 1
        self.enter(life.worker, life.incarnation + 1, None)

    def declare(self, life: Life) -> None:
        """The coordinator tells everyone that a life is over; each hears of it in its own time."""
        life.declared = True
        gone = Left(life.worker, life.incarnation)
        for words in self._words:
            words.send(gone, self.random.uniform(0, NOTICE))
        self.at(self.now + self.random.uniform(0, NOTICE), partial(self._left_state, life))

    def declare_if_needed(self, life: Life) -> None:
        """The coordinator has not heard of a worker for too long. It takes it for dead, unless it is back by now."""
        if not life.declared and (not life.alive or life.silent > self.now):
            self.declare(life)

    # What happens at a shard.

    def take(self, life: Life, message: tuple[int, Event]) -> None:
        """A worker's message has arrived."""
        shard, event = message
        for command in self._handle(shard, event):
            if isinstance(command, Drop) and isinstance(event, Pushed | Pulled):
                self._check_drop(life, shard, event, command)
            own = isinstance(event, Pushed) and isinstance(command, Apply | Drop)
            if own or isinstance(command, Drop):
                self._reply(life, shard, (shard, command))
        if isinstance(event, Joined) and event.worker in self.shards[shard].shard.view.workers:
            key = event.worker, event.incarnation, shard
            self._starts.setdefault(key, self.shards[shard].shard.view.iteration(event.worker))

    def _hear(self, shard: int, event: Event) -> None:
        """The coordinator's word has arrived."""
        self._handle(shard, event)

    def _handle(self, shard: int, event: Event) -> list[Command]:
        host = self.hosts[self.server_of(shard)]
        clock = self.now + host.offset
        commands = self.shards[shard].handle(event, clock)
        self._events += 1
        if self._on_event is not None:
            self._on_event(shard, clock, event, commands)
        for command in commands:
            if isinstance(command, Grant):
                life = self.lives[command.worker, command.incarnation]
                self._reply(life, shard, (shard, command))
            elif isinstance(command, SetTimer):
                wait = max(command.at - clock, TICK)
                self.at(self.now + wait, partial(self._timer_fired, shard, TimerFired(command.timer)))
        return commands

    def _reply(self, life: Life, shard: int, reply: Any) -> None:
        server = self.server_of(shard)
        by, until = self.hosts[server].slow
        life.links[server].reply(reply, by if self.now < until else 0.0)

    def _timer_fired(self, shard: int, event: TimerFired) -> None:
        frozen = self.hosts[self.server_of(shard)].frozen
        if frozen > self.now:
            self.at(frozen, partial(self._timer_fired, shard, event))
        else:
            self._handle(shard, event)

    def _check_drop(self, life: Life, shard: int, event: Pushed | Pulled, drop: Drop) -> None:
        """Who is alive and counts as alive is refused only what came late or twice."""
        if not life.alive or life.declared or drop.reason.cause in ("late", "repeat"):
            return
        # With fewer blocks than all it may start before this shard has told it where.
        start = self._starts.get((life.worker, life.incarnation, shard), 0)
        if drop.reason.cause == "order" and self.plan.b < 1 and event.iteration < start:
            return
        raise self.shards[shard].watch.violated(f"the_living_are_heard: {event} of a live worker got {drop}")

    # What happens at the State Server.

    def ask(self, life: Life, message: Any) -> None:
        if self._state is None or self.state_lost:
            return
        clock = self.now + self.hosts[-1].offset
        known = self._asking.get(life.worker)
        if isinstance(message, Joined):
            if life.incarnation > max(-1 if known is None else known, self._ended.get(life.worker, -1)):
                if known is not None:
                    self._state.handle(Left(life.worker), clock)
                self._state.handle(message, clock)
                self._asking[life.worker] = life.incarnation
        elif known == life.incarnation:
            event, round_ = (message, -1) if isinstance(message, Began) else message
            answers = self._state.handle(event, clock)
            answer = Answered(round_, answers[0].steps, answers[0].ready, answers[0].most) if answers else None
            life.links[-1].reply((message, answer))

    def _left_state(self, life: Life) -> None:
        self._ended[life.worker] = max(life.incarnation, self._ended.get(life.worker, -1))
        if self._state is not None and self._asking.get(life.worker) == life.incarnation:
            del self._asking[life.worker]
            self._state.handle(Left(life.worker), self.now + self.hosts[-1].offset)

    def lose_state_server(self) -> None:
        """Each worker finds out in its own time."""
        self.state_lost = True
        for life in self._alive():
            self.at(self.now + self.random.uniform(0, 3 * NOTICE), life.lose_state_server)

    # Faults.

    def _alive(self) -> list[Life]:
        return [life for life in self.newest.values() if life.alive]

    def _change(self, change: Change) -> None:
        model = parse(change.model)
        if change.shard in (None, 0) and self.is_esync and model != self.esync:
            self.is_esync = False
            self.lose_state_server()
        for shard, words in enumerate(self._words):
            if change.shard in (None, shard):
                words.send(SetModel(change.model), self.random.uniform(0, NOTICE))

    def _strike(self, fault: Fault) -> None:
        alive = self._alive()
        if not alive and self._returning:
            self.at(self.now + NOTICE, partial(self._strike, fault))
            return
        self.ahead -= 1
        if alive and STRIKES[type(fault)](self, fault, alive):
            self._faults[fault.kind] += 1
