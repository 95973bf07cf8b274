"""The machines of a simulation: how long each takes for an iteration.

An iteration's length depends on the seed, the worker and how many it has done before, and on nothing else. So the same
cluster under two synchronization models is the same cluster: only the waiting differs.
"""

from __future__ import annotations

from math import inf

from msgspec import Struct

from paceline.sync.coin import coin

SALT = 0x9ACE  # keeps these coins apart from those that a model draws with the same seed


class ClusterError(ValueError):
    """A cluster that cannot be: no workers, a pace that is no time, a hiccup of nobody."""


class Hiccup(Struct, frozen=True):
    """A machine stands still for `seconds` from the time `at` on."""

    worker: int
    at: float
    seconds: float


class Cluster(Struct, frozen=True):
    """Workers with a pace each, in seconds per iteration; `jitter=0.05` lets an iteration be up to 5 % off it."""

    paces: tuple[float, ...]
    jitter: float = 0.0
    hiccups: tuple[Hiccup, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.paces:
            raise ClusterError("a cluster needs at least one worker; give the pace of each")
        for worker, pace in enumerate(self.paces):
            if not 0 < pace < inf:
                raise ClusterError(f"worker {worker} takes {pace:g} seconds per iteration; give a number above 0")
        if not 0 <= self.jitter < 1:
            raise ClusterError(f"jitter is {self.jitter:g}; give a share from 0 to below 1")
        for hiccup in self.hiccups:
            if not (0 <= hiccup.worker < len(self.paces) and hiccup.seconds >= 0):
                raise ClusterError(f"{hiccup} is of no worker, or of no length; workers are 0 to {len(self.paces) - 1}")

    def work(self, worker: int, nth: int) -> float:
        """How long the worker's `nth` iteration takes, hiccups aside."""
        off = 2 * coin(self.seed, worker, nth, SALT) - 1 if self.jitter else 0.0
        return self.paces[worker] * (1 + self.jitter * off)

    def end(self, worker: int, nth: int, begun: float) -> float:
        """When the worker's `nth` iteration ends if it begins at `begun`."""
        end = begun + self.work(worker, nth)
        for hiccup in sorted(self.hiccups, key=lambda hiccup: hiccup.at):
            over = hiccup.at + hiccup.seconds
            if hiccup.worker == worker and begun < over and hiccup.at < end:
                end += over - max(begun, hiccup.at)
        return end
