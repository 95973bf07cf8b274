"""ESync's State Server: may a worker end its round, or is there time for another local iteration?

The paper's QUERY-STATE, to the letter. A worker that asks is not ready while it has done no local iteration, or while
the slowest has not finished its pull. It is ready if it is the slowest, if the slowest is ready, or if its own
iteration would end after the slowest's. The slowest is the one with the longest last iteration, the lowest rank among
equals; capability is measured anew at every query, so this follows machines whose speed changes.

One thing is ours, for workers that join. Shards close a round each in its own time, so a joiner can begin ahead of
those that are ready and wait for it. In its first round it is therefore ready if the slowest is, though that has not
begun the round yet; by the letter of the paper each would wait for the other.

Finding the slowest takes O(log N): a heap that may hold outdated entries, which are thrown out when they surface.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Literal

from msgspec import Struct

from paceline.sync.errors import EventError
from paceline.sync.events import Joined, Left
from paceline.sync.models.esync import ESync


class Queried(Struct, frozen=True, gc=False):
    """After `steps` local iterations, the last of which took `capability` and ended at `finished`, a worker asks."""

    worker: int
    steps: int
    capability: float
    finished: float


class Began(Struct, frozen=True, gc=False):
    """A worker has finished its pull and begins `round` (the paper's RESET-STATE-SERVER)."""

    worker: int
    round: int


Why = Literal[
    "first",  # it has done no local iteration yet
    "pulling",  # the slowest has not begun this round
    "slowest",  # it is the slowest
    "slowest-ready",  # the slowest is ready
    "no-time",  # another iteration would end after the slowest's
    "limit",  # it has done as many iterations as the model lets it
    "time",  # there is time for another iteration
]


class Answer(Struct, frozen=True, gc=False):
    """Whether the worker ends its round now, and why; `slowest` is the worker it was measured by."""

    worker: int
    steps: int
    ready: bool
    why: Why
    slowest: int | None


class Record:
    """What is known of one worker. Until it has asked once it counts as infinitely slow, and as pulling."""

    __slots__ = ("capability", "finished", "first", "ready", "round")

    def __init__(self) -> None:
        self.capability = inf
        self.finished = -inf
        self.ready = False
        self.round = -1
        self.first: int | None = 0  # the first round that it takes part in; who joins later has not begun it yet


class StateServer:
    """Answers the workers' queries."""

    def __init__(self, model: ESync, workers: int) -> None:
        self.model = model
        self._records = {worker: Record() for worker in range(workers)}
        self._heap = [(-inf, worker) for worker in range(workers)]

    def handle(self, event: Queried | Began | Joined | Left, now: float) -> list[Answer]:
        match event:
            case Queried():
                return [self._query(event, now)]
            case Began(worker, round_):
                record = self._record(worker)
                record.round, record.finished, record.ready = round_, now, False
                record.first = round_ if record.first is None else record.first
            case Joined(worker=worker):
                if worker not in self._records:
                    self._records[worker] = record = Record()
                    record.first = None
                    heappush(self._heap, (-inf, worker))
            case Left(worker=worker):
                self._records.pop(worker, None)
            case _:
                raise EventError(f"{event!r} is no event; a State Server takes Queried, Began, Joined, Left")
        return []

    def _query(self, query: Queried, now: float) -> Answer:
        current = self._record(query.worker)
        if current.round < 0:
            current.round = 0
        if current.capability != query.capability:
            current.capability = query.capability
            heappush(self._heap, (-query.capability, query.worker))
        current.finished = query.finished
        worker, slowest = self._slowest()

        def answer(ready: bool, why: Why) -> Answer:
            current.ready = current.ready or ready
            return Answer(query.worker, query.steps, ready, why, worker)

        if query.steps == 0:
            return answer(False, "first")
        if query.steps >= self.model.max_steps:
            return answer(True, "limit")
        if slowest.round < current.round and not (slowest.ready and current.round == current.first):
            return answer(False, "pulling")
        rest = slowest.capability - now + slowest.finished
        if slowest is current:
            return answer(True, "slowest")
        if slowest.ready:
            return answer(True, "slowest-ready")
        if current.capability + self.model.epsilon > rest:
            return answer(True, "no-time")
        return answer(False, "time")

    def _slowest(self) -> tuple[int, Record]:
        if len(self._heap) > 2 * len(self._records) + 16:
            self._heap = [(-record.capability, worker) for worker, record in self._records.items()]
            heapify(self._heap)
        while True:
            negative, worker = self._heap[0]
            record = self._records.get(worker)
            if record is not None and record.capability == -negative:
                return worker, record
            heappop(self._heap)

    def _record(self, worker: int) -> Record:
        record = self._records.get(worker)
        if record is None:
            raise EventError(f"worker {worker} is not registered with the State Server; it has to join first")
        return record
