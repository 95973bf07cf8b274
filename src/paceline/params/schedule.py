"""Learning-rate schedules that follow global progress: what the base rate is multiplied with at an iteration.

They are plain values that travel, torch's schedulers in closed form and without torch. `minimum` and the like are
shares of the base rate, where torch takes a rate. A schedule that has run its course keeps its last value.
"""

from __future__ import annotations

from bisect import bisect_right
from math import cos, isfinite, pi

from msgspec import Struct

from paceline.params.space import ParameterError


class ScheduleError(ParameterError):
    """A schedule that cannot be as it was asked for."""


class Schedule(Struct, frozen=True, tag_field="schedule", tag=str.lower):
    """The base of every schedule."""

    def factor(self, progress: int) -> float:
        """What the base rate is multiplied with at this iteration, from 0."""
        raise NotImplementedError

    def _check(self, name: str, good: bool, range_: str) -> None:
        value = getattr(self, name)
        if not good:
            raise ScheduleError(f"{type(self).__name__.lower()}: {name} is {value!r}; it must be {range_}")

    def _check_steps(self, name: str) -> None:
        steps = getattr(self, name)
        self._check(name, type(steps) is int and steps > 0, "a whole number of iterations from 1")

    def _check_factor(self, name: str) -> None:
        factor = getattr(self, name)
        self._check(name, isfinite(factor) and factor >= 0, "a number from 0")


class Constant(Schedule, frozen=True):
    """The same always."""

    value: float = 1.0

    def __post_init__(self) -> None:
        self._check_factor("value")

    def factor(self, progress: int) -> float:
        return self.value


class Step(Schedule, frozen=True):
    """Times `gamma` every so many iterations."""

    every: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        self._check_steps("every")
        self._check_factor("gamma")

    def factor(self, progress: int) -> float:
        return self.gamma ** (progress // self.every)


class MultiStep(Schedule, frozen=True):
    """Times `gamma` at each milestone."""

    milestones: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        _check_milestones(self, self.milestones)
        self._check_factor("gamma")

    def factor(self, progress: int) -> float:
        return self.gamma ** bisect_right(self.milestones, progress)


class Exponential(Schedule, frozen=True):
    """Times `gamma` at each iteration."""

    gamma: float

    def __post_init__(self) -> None:
        self._check_factor("gamma")

    def factor(self, progress: int) -> float:
        return self.gamma**progress


class Cosine(Schedule, frozen=True):
    """From 1 down to `minimum` in `steps` iterations along half a cosine."""

    steps: int
    minimum: float = 0.0

    def __post_init__(self) -> None:
        self._check_steps("steps")
        self._check_factor("minimum")

    def factor(self, progress: int) -> float:
        along = min(progress, self.steps) / self.steps
        return self.minimum + (1 - self.minimum) * (1 + cos(pi * along)) / 2


class Warmup(Schedule, frozen=True):
    """From `start` up to 1 in `steps` iterations along a line."""

    steps: int
    start: float = 1 / 3

    def __post_init__(self) -> None:
        self._check_steps("steps")
        self._check_factor("start")

    def factor(self, progress: int) -> float:
        return self.start + (1 - self.start) * min(progress, self.steps) / self.steps


class Polynomial(Schedule, frozen=True):
    """From 1 down to 0 in `steps` iterations: what is left of them, as a share, to a power."""

    steps: int
    power: float = 1.0

    def __post_init__(self) -> None:
        self._check_steps("steps")
        self._check_factor("power")

    def factor(self, progress: int) -> float:
        return float((1 - min(progress, self.steps) / self.steps) ** self.power)


class Sequence(Schedule, frozen=True):
    """One schedule after another: the next begins, at its own 0, at each milestone."""

    schedules: tuple[AnySchedule, ...]
    milestones: tuple[int, ...]

    def __post_init__(self) -> None:
        _check_milestones(self, self.milestones)
        self._check("schedules", len(self.schedules) == len(self.milestones) + 1, "one more than the milestones")

    def factor(self, progress: int) -> float:
        place = bisect_right(self.milestones, progress)
        return self.schedules[place].factor(progress - self.milestones[place - 1] if place else progress)


AnySchedule = Constant | Step | MultiStep | Exponential | Cosine | Warmup | Polynomial | Sequence


def _check_milestones(schedule: Schedule, milestones: tuple[int, ...]) -> None:
    rising = all(a < b for a, b in zip((0, *milestones), milestones, strict=False))
    schedule._check("milestones", bool(milestones) and rising, "iterations from 1, each after the one before")
