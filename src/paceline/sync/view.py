"""What a model may look at when it decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from paceline.sync.progress import Progress

if TYPE_CHECKING:
    from paceline.sync.events import Stop


class View:
    """A shard's progress, to read but not to change.

    `memory` is the exception: it is the model's own, made by `Model.memory` when the model comes into force, and the
    model may write there what it has to remember.
    """

    __slots__ = ("_epoch", "_index", "_now", "_progress", "_seed", "memory")

    def __init__(self, progress: Progress, seed: int, index: int) -> None:
        self._progress = progress
        self._seed = seed
        self._index = index
        self._epoch = 0
        self._now = float("-inf")
        self.memory: Any = None

    @property
    def now(self) -> float:
        """The time of the event that is being handled."""
        return self._now

    @property
    def seed(self) -> int:
        """For coins; the same on all shards."""
        return self._seed

    @property
    def index(self) -> int:
        """Which of the servers' shards this is. Shard 0 plans where a model needs one plan for all."""
        return self._index

    @property
    def epoch(self) -> int:
        """How often the shard has advanced or changed its model."""
        return self._epoch

    # What the shard does, and no model may.

    def _at(self, now: float) -> None:
        if now > self._now:
            self._now = now

    def _next_epoch(self) -> None:
        self._epoch += 1

    # What there is to see.

    @property
    def clock(self) -> int:
        """`V`, the round that is not closed yet."""
        return self._progress.clock

    @property
    def live(self) -> int:
        """`N`, how many workers take part now."""
        return len(self._progress.members)

    @property
    def workers(self) -> Collection[int]:
        return self._progress.members.keys()

    @property
    def slowest(self) -> int:
        """The least iteration that a live worker is in."""
        return self._progress.slowest

    @property
    def fastest(self) -> int:
        """The greatest iteration that a live worker is in."""
        return self._progress.fastest

    @property
    def laggards(self) -> tuple[int, ...]:
        """The first few of the workers that the open round waits for."""
        return self._progress.laggards()

    def count(self, iteration: int) -> int:
        """How many live workers have pushed `iteration`. Costs nothing to speak of for the open round."""
        return self._progress.count(iteration)

    def iteration(self, worker: int) -> int:
        """The iteration that a live worker is in."""
        return self._progress.members[worker].next

    def significance(self, worker: int) -> float:
        """`|g| / |w|` of the worker's last gradient."""
        return self._progress.members[worker].significance

    def intervals(self, worker: int) -> Sequence[float]:
        """A worker's last few times from grant to push, oldest first; as many as the model's `intervals` asks for."""
        return self._progress.members[worker].recent()

    def told(self, worker: int) -> Stop | None:
        """The stop of ElasticBSP's plan that the worker knew of when it last pushed."""
        return self._progress.members[worker].told

    def computing_since(self, worker: int) -> float | None:
        """When the worker was last granted a pull, unless it has pushed since."""
        return self._progress.members[worker].granted_at
