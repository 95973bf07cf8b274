"""ESync's State Server: may a worker end its round, or is there time for another local iteration?

The paper's QUERY-STATE, to the letter. A worker that asks is not ready while it has done no local iteration, or while
the slowest has not finished its pull. It is ready if it is the slowest, if the slowest is ready, or if its own
iteration would end after the slowest's. The slowest is the one with the longest last iteration; capability is measured
anew at every query, so this follows machines whose speed changes.

What the paper leaves open, or does not have:

- Among workers that are equally slow, but for the model's epsilon, the slowest is the one that will be done last. Those
  that wait for it wait for the others, too.
- The paper times a batch before training; here a worker's capability is not known until its first iteration is done.
  Until then it counts as the slowest of all, but not for a worker whose every iteration took more than ten times as
  long as somebody's. For that one it counts as no slower than the slowest that is known: the slow ones are likely to be
  alike, and the first of them to be done should not begin another iteration, for which all would wait. Others can
  well begin theirs; it is short.
- Shards close a round each in its own time, so a worker that joins can begin ahead of those that are ready and wait for
  it. In its first round it is therefore ready if the slowest is, though that has not begun the round yet; by the letter
  of the paper each would wait for the other.

Finding the slowest takes O(log N): heaps that may hold outdated entries, which are thrown out when they surface.
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


UNEVEN = 10.0  # of two workers, one that always takes so many times as long is of another kind; less may be chance

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
    """Whether the worker ends its round now, and why; `slowest` is the worker it was measured by.

    `most` is the highest number of local iterations in its round that is known of any worker.
    """

    worker: int
    steps: int
    ready: bool
    why: Why
    slowest: int | None
    most: int


class Record:
    """What is known of one worker. Until it has asked once it counts as pulling."""

    __slots__ = ("capability", "finished", "first", "ready", "round", "shortest")

    def __init__(self) -> None:
        self.capability = inf  # until it is known
        self.shortest = inf  # iteration that it has had
        self.finished = -inf
        self.ready = False
        self.round = -1
        self.first: int | None = 0  # the first round that it takes part in; who joins later has not begun it yet

    @property
    def end(self) -> float:
        """When it is done with its iteration; one that is ready is done already."""
        return self.finished if self.ready else self.finished + self.capability


class StateServer:
    """Answers the workers' queries."""

    def __init__(self, model: ESync, workers: int) -> None:
        self.model = model
        self._records = {worker: Record() for worker in range(workers)}
        self._unknown = list(range(workers))  # a heap of those whose capability is not known
        self._known: list[tuple[float, float, int]] = []  # a heap of the others, the slowest first
        self._shortest = inf  # iteration that anybody has had
        self._newest = 0  # round that anybody has asked in
        self._most = 0  # local iterations in that

    def handle(self, event: Queried | Began | Joined | Left, now: float) -> list[Answer]:
        match event:
            case Queried():
                return [self._query(event, now)]
            case Began(worker, round_):
                record = self._record(worker)
                record.round, record.finished, record.ready = round_, now, False
                record.first = round_ if record.first is None else record.first
                self._file(worker, record)
            case Joined(worker=worker):
                if worker not in self._records:
                    self._records[worker] = record = Record()
                    record.first = None
                    self._file(worker, record)
            case Left(worker=worker):
                self._records.pop(worker, None)
            case _:
                raise EventError(f"{event!r} is no event; a State Server takes Queried, Began, Joined, Left")
        return []

    def _query(self, query: Queried, now: float) -> Answer:
        current = self._record(query.worker)
        if current.round < 0:
            current.round = 0
        current.capability, current.finished = query.capability, query.finished
        current.shortest = min(current.shortest, query.capability)
        self._shortest = min(self._shortest, query.capability)
        self._file(query.worker, current)
        most = self._count(current.round, query.steps)
        worker, slowest = self._slowest_for(current)

        def answer(ready: bool, why: Why) -> Answer:
            if ready and not current.ready:
                current.ready = True
                self._file(query.worker, current)
            return Answer(query.worker, query.steps, ready, why, worker, most)

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

    def _count(self, round_: int, steps: int) -> int:
        """Somebody has done so many iterations in a round. Of an earlier round than the newest no more is known."""
        if round_ > self._newest:
            self._newest, self._most = round_, 0
        if round_ == self._newest:
            steps = self._most = max(self._most, steps)
        return steps

    def _slowest_for(self, asking: Record) -> tuple[int, Record]:
        """Of those that are known, or the first of the others; who is slow itself expects no slower one."""
        while self._known and not self._is_current(self._known[0]):
            heappop(self._known)
        while self._unknown and not self._is_unknown(self._unknown[0]):
            heappop(self._unknown)
        worker = self._known[0][2] if self._known else -1
        if self._unknown and (worker < 0 or asking.shortest <= UNEVEN * self._shortest):
            worker = self._unknown[0]
        return worker, self._records[worker]

    def _file(self, worker: int, record: Record) -> None:
        """Something has changed by which it may be the slowest, or not be any more."""
        if record.capability == inf:
            heappush(self._unknown, worker)
        else:
            heappush(self._known, self._entry(worker, record))
        most = 2 * len(self._records) + 16
        if len(self._known) > most:
            self._known = [self._entry(*known) for known in self._records.items() if known[1].capability < inf]
            heapify(self._known)
        if len(self._unknown) > most:
            self._unknown = [worker for worker, record in self._records.items() if record.capability == inf]
            heapify(self._unknown)

    def _entry(self, worker: int, record: Record) -> tuple[float, float, int]:
        epsilon = self.model.epsilon
        capability = round(record.capability / epsilon) if epsilon else record.capability
        return (-capability, -record.end, worker)

    def _is_current(self, entry: tuple[float, float, int]) -> bool:
        record = self._records.get(entry[2])
        return record is not None and record.capability < inf and entry == self._entry(entry[2], record)

    def _is_unknown(self, worker: int) -> bool:
        record = self._records.get(worker)
        return record is not None and record.capability == inf

    def _record(self, worker: int) -> Record:
        record = self._records.get(worker)
        if record is None:
            raise EventError(f"worker {worker} is not registered with the State Server; it has to join first")
        return record
