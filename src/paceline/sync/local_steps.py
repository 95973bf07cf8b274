"""How a worker spends an ESync round: local iterations until the State Server says that it is ready.

Blocking, it asks before each iteration and waits for the answer. Non-blocking, it asks and trains on; when the answer
to an earlier query is READY, the iteration under way is given up and those done count. Its capability then includes the
round trip of a query.

If the State Server is lost, every round has one local iteration: slower, never stuck. Where the model fixes how many
there are, it is not asked.
"""

from __future__ import annotations

from math import inf
from typing import Literal

from msgspec import Struct

from paceline.sync.errors import EventError
from paceline.sync.models.esync import ESync


class RoundBegan(Struct, frozen=True, gc=False):
    """The worker has the global model of `round` and a replica of it."""

    round: int


class StepDone(Struct, frozen=True, gc=False):
    """A local iteration has ended. One that was given up never does."""


class Answered(Struct, frozen=True, gc=False):
    """The State Server has answered the query that this worker sent in `round` after `steps` iterations.

    `most` is how many the fastest worker has done in that round, as far as it knows.
    """

    round: int
    steps: int
    ready: bool
    most: int


class ServerLost(Struct, frozen=True, gc=False):
    """The State Server no longer answers."""


class Query(Struct, frozen=True, gc=False):
    """Ask the State Server."""

    round: int
    steps: int
    capability: float
    finished: float


class Step(Struct, frozen=True, gc=False):
    """Do another local iteration."""


Because = Literal["ready", "fixed", "server lost"]


class Contribute(Struct, frozen=True, gc=False):
    """Give up the iteration under way, if there is one, and push the sum of the `steps` that are done.

    `most` is how many the fastest worker has done, as far as that is known.
    """

    round: int
    steps: int
    reason: Because
    most: int


Action = Query | Step | Contribute


class LocalSteps:
    """One worker's rounds: events in, commands out, as with a shard."""

    def __init__(self, model: ESync) -> None:
        self.model = model
        self._blocking = model.query == "blocking"
        self._round = -1
        self._steps = 0
        self._over = True  # is the round contributed already?
        self._lost = False
        self._capability = inf  # how long the last iteration took; unknown counts as slowest
        self._round_trip = 0.0
        self._begun: float | None = None  # when the iteration under way began
        self._asked: dict[int, float] = {}  # when each open query of this round was sent

    def handle(self, event: RoundBegan | StepDone | Answered | ServerLost, now: float) -> list[Action]:
        match event:
            case RoundBegan(round_):
                self._round, self._steps, self._over = round_, 0, False
                self._asked.clear()
                return self._next(now)
            case StepDone():
                return self._step_done(now)
            case Answered():
                return self._answered(event, now)
            case ServerLost():
                self._lost = True
                idle = not self._over and self._begun is None
                return self._next(now) if idle else []
            case _:
                raise EventError(f"{event!r} is no event; it takes RoundBegan, StepDone, Answered, ServerLost")

    def _step_done(self, now: float) -> list[Action]:
        if self._begun is None:
            raise EventError("a local iteration has ended, but none was under way")
        self._capability = now - self._begun
        self._begun = None
        self._steps += 1
        return self._next(now)

    def _answered(self, answer: Answered, now: float) -> list[Action]:
        sent = self._asked.pop(answer.steps, None) if answer.round == self._round else None
        if sent is None or self._over:
            return []  # of an earlier round, or a second copy
        self._round_trip = now - sent
        if answer.ready and self._steps > 0:
            return [self._contribute("ready", answer.most)]
        return [self._begin(now)] if self._begun is None and self._steps < self.model.max_steps else []

    def _next(self, now: float) -> list[Action]:
        """Between two iterations."""
        if self.model.steps is not None:
            return [self._contribute("fixed") if self._steps >= self.model.steps else self._begin(now)]
        if self._lost:
            return [self._contribute("server lost") if self._steps else self._begin(now)]
        capability = self._capability if self._blocking else self._capability + self._round_trip
        self._asked[self._steps] = now
        query = Query(self._round, self._steps, capability, now)
        return [query] if self._blocking or self._steps >= self.model.max_steps else [query, self._begin(now)]

    def _begin(self, now: float) -> Step:
        self._begun = now
        return Step()

    def _contribute(self, reason: Because, most: int = 0) -> Contribute:
        self._over, self._begun = True, None
        return Contribute(self._round, self._steps, reason, max(most, self._steps))
