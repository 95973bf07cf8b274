"""How many bytes of gradients and parameters a worker has moved."""

from __future__ import annotations


class Traffic:
    def __init__(self) -> None:
        self.sent = self.received = 0
        self.saved = 0  # of gradients, that a codec made unnecessary

    def all_reduced(self, nbytes: int, workers: int) -> None:
        """A ring's all-reduce sends all but a worker's own part twice, and receives as much."""
        moved = 2 * (workers - 1) * nbytes // workers
        self.sent += moved
        self.received += moved
