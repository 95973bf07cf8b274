"""PSP-SGD, algorithm 1, written down as the paper has it: one server, and one worker.

The paper's `Receive` waits; here it is a `yield`, and whoever drives hands in the time with what has come by then.
Timestamps are kept in place of tensors: they tell which gradients and which blocks were used.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf


class Server:
    """Server i, of one block. `k` workers; a round closes `tau1` after `c` gradients, or when all have responded."""

    def __init__(self, k: int, c: int, tau1: float) -> None:
        self.k, self.c, self.tau1 = k, c, tau1
        self.t = 0
        self.timeout = inf  # when the round closes at the latest
        self.broadcast: list[int] = []  # the timestamps of what was sent to all the workers
        self.dropped: list[tuple[int, int]] = []  # (worker, timestamp)
        self.updates: list[list[int]] = []  # of each round, whose gradients were summed
        self._run = self._algorithm()
        next(self._run)

    def receive(self, now: float, gradient: tuple[int, int] | None) -> None:
        """A gradient (worker, timestamp) has come; None if only time has passed."""
        self._run.send((now, gradient))

    def _algorithm(self) -> Generator[None, tuple[float, tuple[int, int] | None], None]:
        while True:
            t = self.t
            self.broadcast.append(t)
            g: list[int] = []
            d = 0
            self.timeout = inf
            while True:  # repeat
                now, gradient = yield
                if gradient is not None:
                    j, t_ = gradient
                    if t_ < t:
                        self.dropped.append(gradient)
                    else:
                        g.append(j)
                        d = d + 1
                        if d == self.c:
                            self.timeout = now + self.tau1
                if now >= self.timeout or set(g) == set(range(self.k)):  # until
                    break
            self.updates.append(g)
            self.t = t + 1


class Worker:
    """A worker of as many servers as there are blocks. It starts `tau2` after `b` percent of them, or with all."""

    def __init__(self, blocks: int, b: int, tau2: float) -> None:
        self.blocks, self.b, self.tau2 = blocks, b, tau2
        self.t = 0
        self.timeout = inf  # when it starts at the latest
        self.w = [-1] * blocks  # the timestamp of each block in use
        self.computing = False
        self.missing: list[int] = []  # the blocks that did not come before it started to compute
        self._mailbox: list[tuple[int, int]] = []
        self._run = self._algorithm()
        next(self._run)

    def receive(self, now: float, block: tuple[int, int] | None) -> None:
        """A block (server, timestamp) has come; None if only time has passed. It waits here while the worker computes.

        What has come by `now` is received before the timeout is looked at.
        """
        if block is not None:
            self._mailbox.append(block)
        if not self.computing:
            self._run.send(now)

    def computed(self, now: float, jump: int | None = None) -> None:
        """The gradient is pushed; the next iteration is `t + 1`, as in the paper, or the one that is given."""
        self.t = self.t + 1 if jump is None else jump
        self.computing = False
        next(self._run)
        self._run.send(now)

    def _algorithm(self) -> Generator[None, float, None]:
        while True:
            t = self.t
            received: set[int] = set()
            self.timeout = inf
            while True:  # repeat
                now = yield
                while self._mailbox:
                    j, t_ = self._mailbox.pop(0)
                    if t_ < t:
                        continue  # drop it
                    self.w[j] = t_
                    received.add(j)
                if self.timeout == inf and 100 * len(received) >= self.b * self.blocks:
                    self.timeout = now + self.tau2
                if now >= self.timeout or len(received) == self.blocks:  # until
                    break
            self.missing = [j for j in range(self.blocks) if j not in received]
            self.computing = True
            yield
