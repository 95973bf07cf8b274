"""A slowness as a value: who is slow, how, how often and when."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal, get_args

from msgspec import Struct

Role = Literal["worker", "server"]

MOST_TIMES = 10_000.0
MOST_SECONDS = 86_400.0
MOST_SIGMA = 3.0
MOST_NODES = 1_000_000
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0}


class SlownessError(ValueError):
    """A slowness that cannot be as it was asked for, or that is of nobody in this run."""


class Times(Struct, frozen=True, tag_field="how", tag="times"):
    """So many times as long as it computed, from `low` to `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for factor in (self.low, self.high):
            _check("a factor", factor, 1, MOST_TIMES, "; nothing can be made faster than it is")
        _check_order(self, self.low, self.high)

    def more(self, computed: float, chance: float) -> float:
        return computed * (self.low + (self.high - self.low) * chance - 1)

    def __str__(self) -> str:
        return _span(f"{show(self.low)}x", f"{show(self.high)}x")


class Plus(Struct, frozen=True, tag_field="how", tag="plus"):
    """So many seconds more, from `low` to `high`, however long it computed."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for seconds in (self.low, self.high):
            _check("a delay", seconds, 0, MOST_SECONDS, " seconds")
        _check_order(self, self.low, self.high)

    def more(self, computed: float, chance: float) -> float:
        return self.low + (self.high - self.low) * chance

    def __str__(self) -> str:
        return "+" + _span(show_seconds(self.low), show_seconds(self.high))


class Lognormal(Struct, frozen=True, tag_field="how", tag="lognormal"):
    """A factor whose logarithm is normal with this sigma and the mean 0.

    Half of its draws are below 1. As nothing can be made faster, those iterations take as long as they computed.
    """

    sigma: float

    def __post_init__(self) -> None:
        _check("a sigma", self.sigma, 0, MOST_SIGMA)

    def more(self, computed: float, chance: float) -> float:
        factor = math.exp(self.sigma * NormalDist().inv_cdf(max(chance, 2.0**-54)))
        return computed * (min(max(factor, 1.0), MOST_TIMES) - 1)

    def __str__(self) -> str:
        return f"lognormal {show(self.sigma)}"


class Slowness(Struct, frozen=True, kw_only=True):
    """Who is slow, how, how often and when. `str()` of it is the text that `parse` reads back.

    `nodes` are spans of numbers, both ends included, in order and apart; no span at all means everyone. From `start`
    on, in seconds since the run began, it is in force for `lasts` seconds, `every` so many. Without `every` that is
    once, without `lasts` for good.
    """

    role: Role
    how: Times | Plus | Lognormal
    nodes: tuple[tuple[int, int], ...] = ()
    percent: float = 100.0
    start: float = 0.0
    lasts: float | None = None
    every: float | None = None

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise SlownessError(f"{self.role!r} is no role; it is 'worker' or 'server'")
        last = -2
        for low, high in self.nodes:
            if not (type(low) is int and type(high) is int and last + 1 < low <= high < MOST_NODES):
                raise SlownessError(
                    f"the numbers {self.nodes} cannot be; they are spans from 0, each after the one before and apart, "
                    f"below {MOST_NODES}"
                )
            last = high
        _check("a probability", self.percent, 0, 100, " percent")
        _check("'from'", self.start, 0, MOST_SECONDS, " seconds")
        for name, seconds in (("'for'", self.lasts), ("'every'", self.every)):
            if seconds is not None:
                _check(name, seconds, 1e-3, MOST_SECONDS, " seconds")
        if self.every is not None and (self.lasts is None or self.lasts >= self.every):
            raise SlownessError(
                f"every {show_seconds(self.every)} needs a 'for' that is shorter, as in 'for 10s every 60s'"
            )

    def concerns(self, role: Role, number: int) -> bool:
        """Is this node one of those that are slow?"""
        return role == self.role and (not self.nodes or any(low <= number <= high for low, high in self.nodes))

    def in_force(self, now: float) -> bool:
        """Is it so many seconds after the start?"""
        since = now - self.start
        if since < 0:
            return False
        return self.lasts is None or (since if self.every is None else since % self.every) < self.lasts

    @property
    def effect(self) -> str:
        """The text after the colon: all but who it is."""
        words = [] if self.percent == 100 else [f"{show(self.percent)}%"]
        words.append(str(self.how))
        words += [f"from {show_seconds(self.start)}"] if self.start else []
        words += [f"for {show_seconds(self.lasts)}"] if self.lasts is not None else []
        words += [f"every {show_seconds(self.every)}"] if self.every is not None else []
        return " ".join(words)

    def __str__(self) -> str:
        one = not self.nodes or (len(self.nodes) == 1 and self.nodes[0][0] == self.nodes[0][1])
        numbers = ",".join(_span(str(low), str(high)) for low, high in self.nodes) or "*"
        return f"{self.role}{'' if one else 's'} {numbers}: {self.effect}"


def show(number: float) -> str:
    """A number as people write it, and with all of its digits."""
    return repr(float(number)).removesuffix(".0")


def show_seconds(seconds: float) -> str:
    """A duration in the unit that suits it, if that is the very same number; else in seconds."""
    unit = "ms" if 0 < seconds < 1 else "m" if seconds > 60 and seconds % 60 == 0 else "s"
    number = f"{seconds * 1000 if unit == 'ms' else seconds / UNITS[unit]:.15g}"
    return f"{number}{unit}" if in_seconds(number, unit) == seconds else f"{show(seconds)}s"


def in_seconds(number: str, unit: str) -> float:
    """So many of a unit, in seconds."""
    return float(number) / 1000 if unit == "ms" else float(number) * UNITS[unit]


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low}-{high}"


def _check(what: str, value: float, least: float, most: float, words: str = "") -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least <= value <= most):
        shown = show(value) if isinstance(value, float) else repr(value)
        raise SlownessError(
            f"{what} of {shown} is not allowed; it is a number from {show(least)} to {show(most)}{words}"
        )


def _check_order(how: object, low: float, high: float) -> None:
    if low > high:
        raise SlownessError(f"{how} runs backwards; write the smaller one first")
