"""What a worker has begun and can wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from paceline.nodes import messages as m

Waiting = Callable[[Callable[[], bool], float | None, str], None]  # until what, how long at most, and what that is


class Handle:
    """The push or the pull of an iteration. `outcome` has, for a push, what became of it on each shard."""

    def __init__(self, wait: Waiting, what: Literal["push", "pull"], iteration: int, shards: Sequence[int]) -> None:
        self._wait = wait
        self._what = what
        self._iteration = iteration
        self._missing = set(shards)
        self.outcome: dict[int, m.Outcome] = {}

    @property
    def done(self) -> bool:
        return not self._missing

    def wait(self, timeout: float | None = None) -> None:
        """Until it is done. Without a timeout that may take as long as the model says, while all nodes are alive."""
        self._wait(lambda: self.done, timeout, f"the {self._what} of iteration {self._iteration}")

    def arrived(self, shard: int, outcome: m.Outcome) -> None:
        self.outcome[shard] = outcome
        self._missing.discard(shard)

    def over(self) -> None:
        """Nothing more is waited for."""
        self._missing.clear()
