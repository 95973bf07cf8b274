"""Medians, spreads, ratios and what is best of a grid."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.compare.outcome import Blocking, Outcome, Spread, WorkerShare, band, best, spread, standings
from tests.compare.reports import outcome


def test_times_are_medians_in_comparison_with_the_baseline() -> None:
    rows = [outcome("ddp", seed, time) for seed, time in ((1, 30.0), (2, 20.0), (3, 40.0))]
    rows += [outcome("asp", seed, time) for seed, time in ((1, 10.0), (2, 5.0), (3, None))]
    ddp, asp = standings(rows, ("ddp", "asp"), "ddp")
    assert (ddp.seconds_to_target, ddp.times_as_fast) == (Spread(30, 20, 40), 1.0)
    assert (asp.seconds_to_target, asp.times_as_fast) == (Spread(10, 5, None), 3.0)
    assert (ddp.held_pulls, asp.held_pulls) == (None, 12)
    assert asp.computing == pytest.approx([0.5, 0.6, 0.7, 0.8])


def test_what_was_reached_by_too_few_has_no_median() -> None:
    rows = [outcome("asp", 1, 10.0), outcome("asp", 2, None), outcome("asp", 3, None), outcome("bsp", 1, 3.0)]
    asp, bsp = standings(rows, ("asp", "bsp"), "asp")
    assert asp.seconds_to_target == Spread(None, 10, None)
    assert (asp.times_as_fast, bsp.times_as_fast) == (None, None)


def test_a_run_that_failed_is_counted_and_left_out() -> None:
    rows = [
        outcome("asp", 1, 10.0),
        outcome("asp", 2, 1.0, error="it broke"),
        outcome("bsp", 1, 1.0, error="so did it"),
    ]
    asp, bsp = standings(rows, ("asp", "bsp"), "asp")
    assert (asp.runs, asp.failed, asp.seconds_to_target.median) == (2, 1, 10)
    assert (bsp.failed, bsp.accuracy.median, bsp.times_as_fast) == (1, None, None)


def test_blocking_is_that_of_rounds_of_several_iterations_beside_the_fastest_iteration() -> None:
    def run(seed: int, *workers: tuple[int, float, int, float, float]) -> Outcome:
        shares = [
            WorkerShare(number, iterations, seconds, 1.0, 0.5, None, 0, 0, rounds, blocked, others)
            for number, (iterations, seconds, rounds, blocked, others) in enumerate(workers)
        ]
        return outcome("esync", seed, workers=shares)

    rows = [
        run(1, (100, 2.0, 10, 0.003, 0.002), (10, 4.0, 10, 0.001, 0.0)),
        run(2, (100, 4.0, 7, 0.005, 0.001), (10, 4.0, 8, 0.002, 0.003)),
        run(3, (100, 3.0, 4, 0.009, 0.008), (10, 4.0, 4, 0.004, 0.0)),
        outcome("bsp", 1),
    ]
    esync, bsp = standings(rows, ("esync", "bsp"), "bsp")
    assert esync.blocking == Blocking(for_others=0.003, until_parameters=0.005, iteration=0.03, rounds=8)
    assert bsp.blocking is None


@given(st.lists(st.none() | st.floats(0.1, 100), min_size=1, max_size=9))
def test_a_spread_is_of_the_order(values: list[float | None]) -> None:
    infinite = sorted(float("inf") if value is None else value for value in values)
    found = spread(values)
    assert [float("inf") if v is None else v for v in (found.low, found.median, found.high)] == [
        infinite[0],
        median(infinite),
        infinite[-1],
    ]


def test_the_best_of_the_grid_is_the_soonest_then_the_most_accurate_and_never_one_that_failed() -> None:
    tried = [
        outcome("asp", 0, 10.0, value="a"),
        outcome("asp", 0, 5.0, value="b"),
        outcome("asp", 0, 1.0, value="c", error="it broke"),
        outcome("bsp", 0, None, 0.5, value="a"),
        outcome("bsp", 0, None, 0.7, value="b"),
        outcome("bsp", 0, 99.0, 0.6, value="c"),
        outcome("ssp", 0, None, 0.5, value="a"),
        outcome("ssp", 0, None, 0.7, value="b"),
        outcome("psp", 0, None, None, value="a", error="it broke"),
        outcome("psp", 0, None, None, value="b", error="it broke too"),
    ]
    assert best(tried) == {"asp": "b", "bsp": "c", "ssp": "b", "psp": "a"}


def test_a_band_has_what_was_measured_last() -> None:
    curves = [[(1.0, 0.2), (3.0, 0.6)], [(2.0, 0.4)], [(1.0, 0.1), (2.0, 0.8)]]
    found = band(curves, [0.5, 1.0, 2.5, 9.0])
    assert found["median"] == pytest.approx([0, 0.1, 0.4, 0.6])
    assert found["low"] == pytest.approx([0, 0, 0.2, 0.4])
    assert found["high"] == pytest.approx([0, 0.2, 0.8, 0.8])
