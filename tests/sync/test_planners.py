"""The planners of ElasticBSP against the paper's algorithms and against a search over all combinations."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import Plan, PlanError, full_grid_scan, grid_scan, predict, zipline
from tests.oracles import planners as paper

Matrix = list[list[float]]


def matrices(
    times: st.SearchStrategy[float], n: int, horizon: int, *, distinct: bool = False
) -> st.SearchStrategy[Matrix]:
    """Up to `n` rows of up to `horizon` ascending ends; `distinct`: no two ends anywhere are the same."""

    @st.composite
    def matrix(draw: st.DrawFn) -> Matrix:
        rows, columns = draw(st.integers(1, n)), draw(st.integers(1, horizon))
        ends = draw(st.lists(times, min_size=rows * columns, max_size=rows * columns, unique=distinct))
        return [sorted(ends[row * columns : (row + 1) * columns]) for row in range(rows)]

    return matrix()


@st.composite
def steady(draw: st.DrawFn) -> Matrix:
    """What the prediction gives: every worker goes on at its own pace."""
    horizon = draw(st.integers(1, 12))
    workers = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=6))
    return [[begun / 8 + (j + 1) * pace / 8 for j in range(horizon)] for begun, pace in workers]


tying = st.integers(0, 6).map(float)
exact = st.integers(-(10**5), 10**5).map(lambda ticks: ticks / 64)  # differences of these are not rounded
any_times = st.floats(-1e6, 1e6)
small = st.one_of(matrices(tying, 4, 4), matrices(exact, 4, 4), matrices(any_times, 4, 4))
large = st.one_of(matrices(tying, 7, 8), matrices(exact, 7, 8), steady())
large_distinct = matrices(exact, 7, 8, distinct=True)


def check(plan: Plan, ends: Matrix) -> None:
    """The parts of a plan agree with each other."""
    horizon = len(ends[0])
    assert len(plan.stops) == len(ends)
    assert all(1 <= stop <= horizon for stop in plan.stops)
    picked = [row[stop - 1] for row, stop in zip(ends, plan.stops, strict=True)]
    assert plan.at == max(picked)
    assert plan.wait == max(picked) - min(picked)


@given(small)
@settings(max_examples=600, deadline=None)
def test_zipline_finds_the_least_wait_of_all_combinations_and_the_earliest_barrier_with_it(ends: Matrix) -> None:
    plan, best = zipline(ends), paper.naive_search(ends)
    check(plan, ends)
    assert plan.wait == paper.d(best[0])
    assert plan.at == min(paper.barrier(Z) for Z in best)


@given(st.one_of(large, matrices(any_times, 7, 8)))
@settings(max_examples=600, deadline=None)
def test_zipline_has_the_wait_and_the_barrier_of_the_papers_algorithm_2(ends: Matrix) -> None:
    plan, theirs = zipline(ends), paper.ZipLine(ends)
    check(plan, ends)
    assert plan.wait == paper.d(theirs)
    assert plan.at == paper.barrier(theirs)


@given(large_distinct)
@settings(max_examples=400, deadline=None)
def test_zipline_has_the_stops_of_the_papers_algorithm_2_if_no_two_ends_are_the_same(ends: Matrix) -> None:
    assert zipline(ends).stops.tolist() == paper.stops(paper.ZipLine(ends))


@pytest.mark.parametrize(("ours", "theirs"), [(grid_scan, paper.GridScan), (full_grid_scan, paper.FullGridScan)])
def test_a_scan_takes_the_first_of_a_workers_ends_that_are_at_the_same_time(
    ours: Callable[[Matrix], Plan], theirs: Callable[[Matrix], paper.Z_set]
) -> None:
    ends = [[4.25, 6.0, 7.5], [2.5, 2.5, 2.5]]  # the clock stood still while the second was measured
    assert ours(ends).stops.tolist() == paper.stops(theirs(ends)) == [1, 1]


@pytest.mark.parametrize(("ours", "theirs"), [(grid_scan, paper.GridScan), (full_grid_scan, paper.FullGridScan)])
@given(ends=large)
@settings(max_examples=400, deadline=None)
def test_a_scan_has_the_wait_of_the_papers(
    ours: Callable[[Matrix], Plan], theirs: Callable[[Matrix], paper.Z_set], ends: Matrix
) -> None:
    plan = ours(ends)
    check(plan, ends)
    assert plan.wait == paper.d(theirs(ends))


@pytest.mark.parametrize(("ours", "theirs"), [(grid_scan, paper.GridScan), (full_grid_scan, paper.FullGridScan)])
@given(ends=large_distinct)
@settings(max_examples=400, deadline=None)
def test_a_scan_has_the_stops_of_the_papers_if_no_two_ends_are_the_same(
    ours: Callable[[Matrix], Plan], theirs: Callable[[Matrix], paper.Z_set], ends: Matrix
) -> None:
    assert ours(ends).stops.tolist() == paper.stops(theirs(ends))


@given(st.one_of(large, large_distinct))
@settings(max_examples=400, deadline=None)
def test_zipline_is_no_worse_than_the_full_scan_and_that_no_worse_than_the_scan_of_one_row(ends: Matrix) -> None:
    assert zipline(ends).wait <= full_grid_scan(ends).wait <= grid_scan(ends).wait


def test_each_planner_beats_the_next_somewhere() -> None:
    """So the order of the three is not for want of a difference."""
    rng = np.random.default_rng(0)
    cases = [np.sort(rng.integers(0, 50, (4, 3)), axis=1) for _ in range(200)]
    assert any(zipline(ends).wait < full_grid_scan(ends).wait for ends in cases)
    assert any(full_grid_scan(ends).wait < grid_scan(ends).wait for ends in cases)


@given(large)
@settings(max_examples=200, deadline=None)
def test_a_planner_leaves_what_it_is_given_as_it_was(ends: Matrix) -> None:
    array = np.array(ends)
    for planner in zipline, grid_scan, full_grid_scan:
        planner(array)
    assert array.tolist() == ends


BAD = {
    "a number": 3.0,
    "one row only": [1.0, 2.0],
    "three axes": [[[1.0], [2.0]]],
    "no worker": np.empty((0, 3)),
    "no end": np.empty((2, 0)),
    "nothing": [],
    "NaN first": [[nan, 1.0, 2.0], [1.0, 2.0, 3.0]],
    "NaN between": [[1.0, 2.0, 3.0], [1.0, nan, 3.0]],
    "NaN last": [[1.0, 2.0, nan], [1.0, 2.0, 3.0]],
    "NaN alone": [[nan]],
    "infinite last": [[1.0, 2.0, 3.0], [1.0, 2.0, inf]],
    "infinite between": [[1.0, inf, 3.0]],
    "minus infinite": [[-inf, 1.0], [1.0, 2.0]],
    "descending": [[1.0, 2.0], [2.0, 1.0]],
}


@pytest.mark.parametrize("planner", [zipline, grid_scan, full_grid_scan])
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_planned_on_is_refused(planner: Callable[[object], Plan], bad: object) -> None:
    with pytest.raises(PlanError):
        planner(bad)


@given(st.one_of(large, large_distinct), st.data())
@settings(max_examples=300, deadline=None)
def test_one_bad_end_anywhere_is_refused_by_every_planner(ends: Matrix, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(ends) - 1))
    column = data.draw(st.integers(0, len(ends[0]) - 1))
    too_early = [ends[row][column - 1] - 1] if column else []
    ends[row][column] = data.draw(st.sampled_from([nan, inf, -inf, *too_early]))
    for planner in zipline, grid_scan, full_grid_scan:
        with pytest.raises(PlanError):
            planner(ends)


# The prediction.

intervals = st.integers(1, 400).map(lambda ticks: ticks / 8)


def test_the_last_interval_goes_on_from_where_the_worker_began() -> None:
    ends = predict([[5.0, 2.0], [1.0, 3.0]], [10.0, 20.0], 3, how="last")
    assert ends.tolist() == [[12.0, 14.0, 16.0], [23.0, 26.0, 29.0]]


def test_the_median_of_the_intervals_goes_on_from_where_the_worker_began() -> None:
    ends = predict([[2.0, 9.0, 1.0], [4.0, 4.0, 4.0, 0.5, 8.0]], [10.0, 20.0], 3, how="robust")
    assert ends.tolist() == [[12.0, 14.0, 16.0], [24.0, 28.0, 32.0]]


def test_the_prediction_can_begin_later_and_stop_growing_earlier() -> None:
    """The first worker's columns are its second iteration from now and those after; the second has no fifth."""
    ends = predict([[2.0], [3.0]], [10.0, 20.0], 3, how="last", first=[1, 2], last=[9, 3])
    assert ends.tolist() == [[14.0, 16.0, 18.0], [29.0, 32.0, 32.0]]


@given(intervals, st.lists(intervals, min_size=5, max_size=5), st.integers(0, 4), st.floats(1e-3, 1e6))
@settings(max_examples=400, deadline=None)
def test_one_outlier_among_five_intervals_does_not_move_the_robust_prediction(
    pace: float, others: list[float], place: int, outlier: float
) -> None:
    """Of equal intervals one becomes anything at all; of unequal ones the prediction stays among the other four."""
    five = [pace] * 5
    expected = predict([five], [0.0], 4, how="last")
    five[place] = outlier
    assert predict([five], [0.0], 4, how="robust").tolist() == expected.tolist()
    others[place] = outlier
    normal = others[:place] + others[place + 1 :]
    [[first]] = predict([others], [0.0], 1, how="robust")
    assert min(normal) <= first <= max(normal)


@given(st.lists(intervals, min_size=1, max_size=4), intervals)
@settings(max_examples=200, deadline=None)
def test_the_last_interval_alone_decides_the_papers_prediction(before: list[float], last: float) -> None:
    assert predict([[*before, last]], [1.0], 2, how="last").tolist() == [[1.0 + last, 1.0 + 2 * last]]


@given(st.lists(st.tuples(st.lists(intervals, min_size=1, max_size=5), intervals), min_size=1, max_size=5))
@settings(max_examples=200, deadline=None)
def test_every_prediction_can_be_planned_on(workers: list[tuple[list[float], float]]) -> None:
    hows: list[Literal["last", "robust"]] = ["last", "robust"]
    for how in hows:
        ends = predict([recent for recent, _ in workers], [begun for _, begun in workers], 6, how=how)
        assert ends.shape == (len(workers), 6)
        for planner in zipline, grid_scan, full_grid_scan:
            check(planner(ends), ends.tolist())
