"""What a simulation tells: who computed and who waited, when and for whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from paceline.sync import Grant, Hold

Kind = Literal["computing", "waiting"]


class Span(Struct, gc=False):
    """What one worker did from `start` to `end`.

    A wait names the worker whose push ended it; where a timeout ended it, or nothing yet, those that are missing; and
    nobody where only messages were under way. `wasted` is the share of the shards that dropped what was computed.
    """

    start: float
    end: float
    kind: Kind
    iteration: int
    waiting_for: tuple[int, ...] = ()
    wasted: float = 0.0

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Lane(Struct):
    """One worker from the beginning to the end."""

    worker: int
    pace: float
    iterations: int  # how many it has finished; local ones under esync
    used: float  # how many of them the parameters have in them
    computing: float  # which share of the time it computed
    spans: list[Span]


class Timeline(Struct):
    """A whole run under one model. Counts are over all shards."""

    model: str
    seconds: float
    shards: int
    iterations: int
    used: float
    computing: float
    held_pulls: int
    dropped: int
    staleness: float  # the mean over the gradients that were applied
    rounds: int  # how many the first shard has closed
    lanes: list[Lane]

    def against(self, baseline: Timeline) -> float | None:
        """How many times the baseline's iterations went into the parameters."""
        return self.used / baseline.used if baseline.used else None


class Recorder:
    """Writes one worker's spans as they happen."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.spans: list[Span] = []
        self.begun = 0  # how many iterations have begun, those that were given up too
        self.iterations = 0
        self.lost = 0.0  # how many of them were dropped
        self._since = 0.0
        self._kind: Kind = "waiting"
        self._iteration = -1
        self._held: dict[tuple[int, int], tuple[int, ...]] = {}  # for whom, by shard and iteration of the pull

    def held(self, shard: int, hold: Hold) -> None:
        self._held[shard, hold.iteration] = hold.reason.waiting_for

    def answered(self, shard: int, grant: Grant, missing: tuple[int, ...]) -> tuple[int, ...]:
        """Whom this answer waited for: who closed the round, or who was missing when a timeout did."""
        named = self._held.pop((shard, grant.iteration), None)
        if named is None:
            return ()
        return self._others(grant.reason.waiting_for) or self._others(missing) or self._others(named)

    def unanswered(self, missing: Callable[[int], tuple[int, ...]]) -> tuple[int, ...]:
        """Whom the shards that have not answered yet wait for."""
        shards = {shard for shard, _ in self._held}
        return self._others(tuple(sorted({worker for shard in shards for worker in missing(shard)})))

    def wait_ended(self, waiting_for: tuple[int, ...], now: float) -> None:
        self._write(now, waiting_for)

    def computes(self, iteration: int, now: float) -> None:
        self._write(now)
        self._kind, self._iteration = "computing", iteration
        self.begun += 1

    def waits(self, now: float, *, done: bool) -> None:
        """An iteration is done, or given up, and a wait begins."""
        span = self._write(now)
        if done:
            self.iterations += 1
        elif span is not None:
            span.wasted = 1.0
        self._kind = "waiting"

    def dropped(self, iteration: int, shards: int) -> None:
        """One of the shards has dropped the gradient of this iteration."""
        self.lost += 1 / shards
        for span in reversed(self.spans):
            if span.kind == "computing" and span.iteration == iteration:
                span.wasted = round(span.wasted + 1 / shards, 9)
                return

    def lane(self, pace: float, seconds: float, missing: Callable[[int], tuple[int, ...]]) -> Lane:
        """The end. What is under way is cut off here, and does not count as an iteration."""
        self._write(seconds, self.unanswered(missing) if self._kind == "waiting" else ())
        computing = sum(span.seconds for span in self.spans if span.kind == "computing") / seconds
        return Lane(self.worker, pace, self.iterations, round(self.iterations - self.lost, 9), computing, self.spans)

    def _write(self, now: float, waiting_for: tuple[int, ...] = ()) -> Span | None:
        since, self._since = self._since, now
        if now <= since:
            return None
        self.spans.append(Span(since, now, self._kind, self._iteration, waiting_for))
        return self.spans[-1]

    def _others(self, workers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(worker for worker in workers if worker != self.worker)
