"""How a claim is judged: by its figures and a rule that is printed with it, never by hand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf

from paceline.reproduce.target import Claim, Verdict

ENOUGH = 0.8  # of a paper's gain


def at_least(text: str, ours: float, asked: float, *, neutral: float, unit: str = "", why: str) -> Claim:
    """Holds from `asked` on; in direction above `neutral`, where there is no difference at all."""
    return between(text, ours, asked, inf, neutral=neutral, unit=unit, why=why)


def near(text: str, ours: float, paper: float, *, neutral: float, unit: str = "", why: str) -> Claim:
    """Where no bound was asked for: holds with four fifths of the paper's gain over `neutral`, or more."""
    return at_least(text, ours, neutral + ENOUGH * (paper - neutral), neutral=neutral, unit=unit, why=why)


def at_most(text: str, ours: float, asked: float, *, neutral: float, unit: str = "", why: str) -> Claim:
    """Holds up to `asked`; in direction below `neutral`."""
    verdict: Verdict = _graded(ours <= asked, ours < neutral)
    rule = f"holds up to {_number(asked, unit)}, in direction below {_number(neutral, unit)}"
    return Claim(text, verdict, rule, f"{_number(ours, unit)}: {why}")


def between(text: str, ours: float, low: float, high: float, *, neutral: float, unit: str = "", why: str) -> Claim:
    """Holds from `low` to `high`; in direction if it is on the same side of `neutral` as they are."""
    same_side = ours > neutral if low >= neutral else ours < neutral
    upto = f" to {_number(high, unit)}" if high < inf else ""
    side = "above" if low >= neutral else "below"
    rule = f"holds from {_number(low, unit)}{upto}, in direction {side} {_number(neutral, unit)}"
    return Claim(text, _graded(low <= ours <= high, same_side), rule, f"{_number(ours, unit)}: {why}")


def ascending(text: str, ours: Mapping[str, float], *, unit: str = "", why: str) -> Claim:
    """Holds if each is above the one before it; in direction if only the last is above the first."""
    values = list(ours.values())
    strictly = all(before < after for before, after in pairwise(values))
    listed = ", ".join(f"{name} {_number(value, unit)}" for name, value in ours.items())
    rule = "holds if each is above the one before, in direction if the last is above the first"
    return Claim(text, _graded(strictly, values[0] < values[-1]), rule, f"{listed}: {why}")


def everywhere(text: str, ours: Mapping[str, float], asked: float, *, unit: str = "", why: str) -> Claim:
    """Holds if every figure is above `asked`; in direction if most are."""
    above = [name for name, value in ours.items() if value > asked]
    listed = ", ".join(f"{name} {_number(value, unit)}" for name, value in ours.items())
    rule = f"holds if all are above {_number(asked, unit)}, in direction if more than half are"
    return Claim(text, _graded(len(above) == len(ours), 2 * len(above) > len(ours)), rule, f"{listed}: {why}")


def _graded(holds: bool, in_direction: bool) -> Verdict:
    if holds:
        return "holds"
    return "holds in direction" if in_direction else "does not hold"


def _number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{text}{'' if unit in ('x', '') else ' '}{unit}"
