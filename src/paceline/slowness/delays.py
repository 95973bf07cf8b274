"""What slownesses do to one node, drawn from a seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

from paceline.slowness.values import Role, Slowness, SlownessError
from paceline.sync.coin import coin


class Delays:
    """What the slownesses of a run do to one node: how much longer each of its iterations, or answers, must take."""

    def __init__(self, slownesses: Iterable[Slowness], role: Role, number: int, seed: int = 0) -> None:
        self._number, self._seed, self._done = number, seed, 0
        self._mine: list[tuple[Slowness, int, int]] = []
        alike: Counter[str] = Counter()
        for slowness in slownesses:
            if slowness.concerns(role, number):
                effect = slowness.effect
                self._mine.append((slowness, *_salts(f"{role} {alike[effect]} {effect}")))
                alike[effect] += 1

    def __bool__(self) -> bool:
        """Is there anything that slows this node down?"""
        return bool(self._mine)

    def after(self, computed: float, now: float) -> float:
        """How many more seconds the next iteration must take, having computed so long, so many seconds into the run."""
        more = self.of(self._done, computed, now)
        self._done += 1
        return more

    def of(self, nth: int, computed: float, now: float) -> float:
        """The same for any iteration, counted from 0; it changes nothing."""
        more = 0.0
        for slowness, salt, salt_of_how in self._mine:
            if slowness.in_force(now) and 100 * coin(self._seed, self._number, nth, salt) < slowness.percent:
                more += slowness.how.more(computed, coin(self._seed, self._number, nth, salt_of_how))
        return more


def check(slownesses: Iterable[Slowness], workers: int, servers: int) -> None:
    """Is everyone who is to be slow there? If not, a `SlownessError` says who is not."""
    for slowness in slownesses:
        there = workers if slowness.role == "worker" else servers
        missing = next((max(low, there) for low, high in slowness.nodes if high >= there), None)
        if missing is not None:
            known = "number 0 only" if there == 1 else f"numbers 0 to {there - 1}"
            raise SlownessError(
                f"{str(slowness)!r}: there is no {slowness.role} {missing} in a run of {there}; it has {known}"
            )


def _salts(words: str) -> tuple[int, int]:
    """Two numbers that keep the coins of one slowness apart from those of all others."""
    digest = blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")
