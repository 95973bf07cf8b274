"""How claims are judged: each verdict can be reached, and follows from the figures alone."""

from __future__ import annotations

import pytest

from paceline.reproduce import verdicts
from paceline.reproduce.target import Verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(13.0, "holds"), (20, "holds"), (1, "holds in direction"), (0, "does not hold")]
)
def test_at_least(ours: float, verdict: Verdict) -> None:
    claim = verdicts.at_least("saves 17 %", ours, 13, neutral=0, unit="%", why="four may be late")
    assert claim.verdict == verdict
    assert claim.rule == "holds from 13 %, in direction above 0 %"
    assert claim.why == f"{ours:g} %: four may be late"


@pytest.mark.parametrize(("ours", "verdict"), [(3.7, "holds"), (3.5, "holds in direction"), (1.0, "does not hold")])
def test_near_is_four_fifths_of_the_gain(ours: float, verdict: Verdict) -> None:
    assert verdicts.near("4.26 times", ours, 4.26, neutral=1, unit="x", why="").verdict == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.3, "holds"), (0.5, "holds in direction"), (1.0, "does not hold"), (2, "does not hold")]
)
def test_at_most(ours: float, verdict: Verdict) -> None:
    assert verdicts.at_most("a quarter", ours, 1 / 3, neutral=1, unit="x", why="").verdict == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(3500, "holds"), (5000, "holds"), (5001, "holds in direction"), (10, "holds in direction"), (0, "does not hold")],
)
def test_between(ours: float, verdict: Verdict) -> None:
    assert verdicts.between("4 002", ours, 3500, 5000, neutral=0, why="").verdict == verdict


def test_between_below_what_makes_no_difference() -> None:
    def judged(ours: float) -> Verdict:
        return verdicts.between("half", ours, 0.4, 0.6, neutral=1, why="").verdict

    assert [judged(ours) for ours in (0.5, 0.9, 1.1)] == ["holds", "holds in direction", "does not hold"]


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((1, 2, 3), "holds"),
        ((1, 1, 3), "holds in direction"),
        ((2, 1, 3), "holds in direction"),
        ((1, 1), "does not hold"),
        ((3, 2, 1), "does not hold"),
    ],
)
def test_ascending(values: tuple[float, ...], verdict: Verdict) -> None:
    claim = verdicts.ascending("in order", {str(place): value for place, value in enumerate(values)}, why="so")
    assert claim.verdict == verdict
    assert claim.why.startswith(f"0 {values[0]}, 1 {values[1]}")


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((2, 3, 4), "holds"), ((0.5, 3, 4), "holds in direction"), ((0.5, 0.5, 4), "does not hold")],
)
def test_everywhere(values: tuple[float, ...], verdict: Verdict) -> None:
    figures = {str(place): value for place, value in enumerate(values)}
    assert verdicts.everywhere("faster", figures, 1, unit="x", why="").verdict == verdict
