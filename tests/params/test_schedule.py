"""Schedules against torch's own schedulers, and as values that travel."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from paceline.params import ScheduleError
from paceline.params.schedule import (
    AnySchedule,
    Constant,
    Cosine,
    Exponential,
    MultiStep,
    Polynomial,
    Schedule,
    Sequence,
    Step,
    Warmup,
)
from tests.effort import cases

BASE = 0.3
factors = st.floats(0.1, 1.0)
gammas = st.floats(0.1, 1.1)
steps = st.integers(1, 30)
milestones = st.sets(st.integers(1, 40), min_size=1, max_size=4).map(lambda marks: tuple(sorted(marks)))
simple = st.one_of(
    st.builds(Constant, factors),
    st.builds(Step, steps, gammas),
    st.builds(MultiStep, milestones, gammas),
    st.builds(Exponential, gammas),
    st.builds(Cosine, steps, st.floats(0.0, 0.9)),
    st.builds(Warmup, steps, st.floats(0.1, 1.0)),
    st.builds(Polynomial, steps, st.floats(0.5, 3.0)),
)


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    marks = draw(milestones)
    return Sequence(tuple(draw(st.lists(simple, min_size=len(marks) + 1, max_size=len(marks) + 1))), marks)


def theirs(optimizer: torch.optim.Optimizer, schedule: Schedule) -> Any:
    match schedule:
        case Constant(value):
            return lr_scheduler.ConstantLR(optimizer, value, total_iters=10**6)
        case Step(every, gamma):
            return lr_scheduler.StepLR(optimizer, every, gamma)
        case MultiStep(marks, gamma):
            return lr_scheduler.MultiStepLR(optimizer, list(marks), gamma)
        case Exponential(gamma):
            return lr_scheduler.ExponentialLR(optimizer, gamma)
        case Cosine(count, minimum):
            return lr_scheduler.CosineAnnealingLR(optimizer, count, eta_min=minimum * BASE)
        case Warmup(count, start):
            return lr_scheduler.LinearLR(optimizer, start, 1.0, count)
        case Polynomial(count, power):
            return lr_scheduler.PolynomialLR(optimizer, count, power)
        case Sequence(schedules, marks):
            return lr_scheduler.SequentialLR(optimizer, [theirs(optimizer, one) for one in schedules], list(marks))
    raise AssertionError(schedule)


def rates(schedule: Schedule, count: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    scheduler = theirs(optimizer, schedule)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.filterwarnings("ignore:.*epoch parameter:UserWarning")
@given(schedule=simple | sequences())
@settings(max_examples=cases(150), deadline=None)
def test_the_rates_are_those_of_torch(schedule: Schedule) -> None:
    count = 50
    if isinstance(schedule, Cosine):  # after that torch goes up again
        count = schedule.steps + 1
    if isinstance(schedule, Sequence):
        lengths = [b - a for a, b in zip((0, *schedule.milestones), (*schedule.milestones, count), strict=True)]
        for one, length in zip(schedule.schedules, lengths, strict=True):
            if isinstance(one, Cosine) and one.steps + 1 < length:
                return
    expected = rates(schedule, count)
    assert [BASE * schedule.factor(progress) for progress in range(count)] == pytest.approx(expected, abs=1e-9)


@given(steps=steps, minimum=st.floats(0.0, 0.9), beyond=st.integers(0, 1000))
def test_a_cosine_that_has_run_its_course_stays_at_its_minimum(steps: int, minimum: float, beyond: int) -> None:
    assert Cosine(steps, minimum).factor(steps + beyond) == pytest.approx(minimum)


@given(schedule=simple | sequences())
@settings(max_examples=cases(50), deadline=None)
def test_a_schedule_travels(schedule: AnySchedule) -> None:
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=AnySchedule) == schedule


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Step(0), "every is 0; it must be a whole number of iterations from 1"),
        (lambda: Step(5, -0.1), "gamma is -0.1"),
        (lambda: Constant(float("nan")), "value is nan"),
        (lambda: Exponential(float("inf")), "gamma is inf"),
        (lambda: Cosine(2.5), "steps is 2.5"),  # type: ignore[arg-type]
        (lambda: MultiStep((5, 5)), "each after the one before"),
        (lambda: MultiStep(()), "milestones is"),
        (lambda: Sequence((Constant(),), (3,)), "one more than the milestones"),
    ],
)
def test_what_cannot_be_is_said(make: Any, said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        make()
