"""The workers' machines and the State Server once more, plainly: what the judge compares the core's with."""

from __future__ import annotations

from math import inf
from typing import Any, Literal

from paceline.sync.events import Joined, Left, TimerFired
from paceline.sync.local_steps import (
    Action,
    Answered,
    Because,
    Contribute,
    Query,
    RoundBegan,
    ServerLost,
    Step,
    StepDone,
)
from paceline.sync.models.esync import ESync
from paceline.sync.partial_pull import Arrived, Asked, SetPullTimer, Start
from paceline.sync.state_server import Answer, Began, Queried, Why


class Waits:
    """Which blocks a worker waits for: all that ever came is kept, and counted again each time."""

    def __init__(self, blocks: int, b: float, tau: float) -> None:
        self._came: list[list[int]] = [[-1] for _ in range(blocks)]
        self._taken = [-1] * blocks
        self._enough = next(n for n in range(1, blocks + 1) if n / blocks >= b - 1e-9)
        self._tau = tau
        self._wanted: int | None = None
        self._deadline: float | None = None
        self._timers = 0

    def handle(self, event: Asked | Arrived | TimerFired, now: float) -> list[Start | SetPullTimer]:
        if isinstance(event, Asked):
            self._wanted, self._deadline = event.iteration + 1, None
        elif isinstance(event, Arrived):
            self._came[event.block].append(event.next)
        if self._wanted is None:
            return []
        newest = [max(came) for came in self._came]
        missing = tuple(block for block, age in enumerate(newest) if age < self._wanted)
        if isinstance(event, TimerFired) and self._deadline is not None and now < self._deadline:
            return self._alarm(missing) if event.timer == self._timers else []
        if len(newest) - len(missing) < self._enough:
            return []
        if not missing:
            return [self._start(newest, missing, "all")]
        if self._deadline is None:
            self._deadline = now + self._tau
            return self._alarm(missing) if self._tau else [self._start(newest, missing, "share")]
        return [self._start(newest, missing, "timeout")] if now >= self._deadline else []

    def _alarm(self, missing: tuple[int, ...]) -> list[Start | SetPullTimer]:
        assert self._deadline is not None
        self._timers += 1
        return [SetPullTimer(self._deadline, self._timers, missing)]

    def _start(self, newest: list[int], missing: tuple[int, ...], reason: Literal["all", "share", "timeout"]) -> Start:
        take = tuple(block for block, age in enumerate(newest) if age > self._taken[block])
        self._taken, self._wanted = newest, None
        return Start(max(newest), take, missing, reason)


class Rounds:
    """How a worker spends an ESync round."""

    def __init__(self, model: ESync) -> None:
        self._model = model
        self._lost = False
        self._over = True
        self._round, self._steps = -1, 0
        self._took = inf
        self._trip = 0.0
        self._begun: float | None = None
        self._asked: dict[tuple[int, int], float] = {}  # round and steps of each query that is not answered

    def handle(self, event: Any, now: float) -> list[Action]:
        match event:
            case RoundBegan(round_):
                self._round, self._steps, self._over = round_, 0, False
                return self._between(now)
            case StepDone():
                assert self._begun is not None
                self._took, self._begun, self._steps = now - self._begun, None, self._steps + 1
                return self._between(now)
            case ServerLost():
                self._lost = True
                return self._between(now) if not self._over and self._begun is None else []
            case Answered(round_, steps, ready, most):
                sent = self._asked.pop((round_, steps), None)
                if sent is None or round_ != self._round or self._over:
                    return []
                self._trip = now - sent
                if ready and self._steps:
                    return [self._contribute("ready", most)]
                more = self._begun is None and self._steps < self._model.max_steps
                return [self._begin(now)] if more else []
        raise AssertionError(event)

    def _between(self, now: float) -> list[Action]:
        if self._model.steps is not None:
            return [self._contribute("fixed") if self._steps == self._model.steps else self._begin(now)]
        if self._lost:
            return [self._contribute("server lost") if self._steps else self._begin(now)]
        blocking = self._model.query == "blocking"
        self._asked[self._round, self._steps] = now
        query = Query(self._round, self._steps, self._took + (0.0 if blocking else self._trip), now)
        return [query] if blocking or self._steps >= self._model.max_steps else [query, self._begin(now)]

    def _begin(self, now: float) -> Step:
        self._begun = now
        return Step()

    def _contribute(self, reason: Because, most: int = 0) -> Contribute:
        self._over, self._begun = True, None
        return Contribute(self._round, self._steps, reason, sorted([most, self._steps])[-1])


class Known:
    """What the State Server knows of one worker."""

    def __init__(self) -> None:
        self.capability = inf
        self.finished = -inf
        self.ready = False
        self.round = -1
        self.begun: list[int] = []  # every round that it has taken part in
        self.iterations: list[float] = []  # as long as they took


class Asking:
    """The paper's QUERY-STATE over a plain table."""

    def __init__(self, model: ESync, workers: int) -> None:
        self._model = model
        self._table = {worker: Known() for worker in range(workers)}
        for known in self._table.values():
            known.begun.append(0)
        self._iterations: list[float] = []  # of everyone
        self._asked: list[tuple[int, int]] = []  # round and steps of every query

    def handle(self, event: Any, now: float) -> list[Answer]:
        match event:
            case Began(worker, round_):
                known = self._table[worker]
                known.round, known.finished, known.ready = round_, now, False
                known.begun.append(round_)
            case Joined(worker=worker):
                self._table.setdefault(worker, Known())
            case Left(worker=worker):
                self._table.pop(worker, None)
            case Queried():
                return [self._query(event, now)]
        return []

    def _query(self, query: Queried, now: float) -> Answer:
        current = self._table[query.worker]
        current.round = max(current.round, 0)
        current.capability, current.finished = query.capability, query.finished
        current.iterations.append(query.capability)
        self._iterations.append(query.capability)
        who = self._slowest_for(current)
        ready, why = self._judge(query.steps, current, self._table[who], now)
        current.ready |= ready
        self._asked.append((current.round, query.steps))
        newest = max(round_ for round_, _ in self._asked)
        done = [steps for round_, steps in self._asked if round_ == newest == current.round]
        return Answer(query.worker, query.steps, ready, why, who, max([query.steps, *done]))

    def _slowest_for(self, asking: Known) -> int:
        """By the longest iteration, in epsilons; of equals, by who is done last. Who is slow expects none slower."""
        unit = self._model.epsilon
        order: dict[int, tuple[float, float]] = {}
        for worker in sorted(self._table):
            known = self._table[worker]
            if known.capability < inf:
                length = round(known.capability / unit) if unit else known.capability
                order[worker] = (length, known.finished + (0 if known.ready else known.capability))
        last = max(order, key=lambda worker: order[worker], default=None)
        strangers = sorted(set(self._table) - set(order))
        if last is None or (strangers and min(asking.iterations) <= 10 * min(self._iterations)):
            return strangers[0]
        return last

    def _judge(self, steps: int, current: Known, slowest: Known, now: float) -> tuple[bool, Why]:
        if steps == 0:
            return False, "first"
        if steps >= self._model.max_steps:
            return True, "limit"
        newcomer = current.begun[:1] == [current.round]  # those that are ready may wait for it
        if slowest.round < current.round and not (newcomer and slowest.ready):
            return False, "pulling"
        if slowest is current:
            return True, "slowest"
        if slowest.ready:
            return True, "slowest-ready"
        remaining = slowest.capability - now + slowest.finished
        if current.capability + self._model.epsilon > remaining:
            return True, "no-time"
        return False, "time"
