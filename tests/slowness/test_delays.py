"""How much longer a node takes: by which form, when, how often, and from which seed."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.slowness import Delays, Role, SlownessError, check, parse

MANY = 20_000


def delays(*texts: str, role: Role = "worker", number: int = 0, seed: int = 0) -> Delays:
    return Delays([parse(text) for text in texts], role, number, seed)


def draws(*texts: str, count: int = MANY, **node: int) -> list[float]:
    """What iterations that computed for one second each take more."""
    drawer = delays(*texts, **node)  # type: ignore[arg-type]
    return [drawer.after(1.0, float(nth)) for nth in range(count)]


def correlation(a: list[float], b: list[float]) -> float:
    mean_a, mean_b = fmean(a), fmean(b)
    cross = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    return cross / math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))


@given(computed=st.floats(0, 1000), now=st.floats(0, 1e6))
def test_times_and_plus(computed: float, now: float) -> None:
    assert delays("worker 0: 5x").after(computed, now) == 4 * computed
    assert delays("worker 0: +50ms").after(computed, now) == 0.05
    assert delays("worker 0: 1x").after(computed, now) == 0


def test_several_texts_add_up() -> None:
    assert delays("worker 0: 5x", "worker *: +1s", "workers 0-3: 2x").after(2.0, 0.0) == 8 + 1 + 2


def test_only_those_who_are_named_are_slow() -> None:
    texts = ("worker 1: 2x", "workers 3-4: 3x", "server *: 5x")
    assert [delays(*texts, number=number).after(1.0, 0.0) for number in range(6)] == [0, 1, 0, 2, 2, 0]
    assert [delays(*texts, role="server", number=number).after(1.0, 0.0) for number in range(3)] == [4, 4, 4]
    assert [bool(delays(*texts, number=number)) for number in range(3)] == [False, True, False]


@pytest.mark.parametrize(
    ("when", "slow_at"),
    [
        ("", range(200)),
        (" from 30s", range(30, 200)),
        (" for 10s", range(10)),
        (" from 30s for 10s", range(30, 40)),
        (" for 10s every 60s", [*range(10), *range(60, 70), *range(120, 130), *range(180, 190)]),
        (" from 5s for 10s every 60s", [*range(5, 15), *range(65, 75), *range(125, 135), *range(185, 195)]),
    ],
)
def test_when_it_is_in_force(when: str, slow_at: list[int]) -> None:
    drawer = delays(f"worker 0: 2x{when}")
    assert [now for now in range(200) if drawer.after(1.0, float(now))] == list(slow_at)


def test_a_probability_is_how_often_it_happens() -> None:
    late = draws("worker 0: 2% +4s")
    assert set(late) == {0.0, 4.0}
    assert late.count(4.0) / MANY == pytest.approx(0.02, abs=5 * math.sqrt(0.02 * 0.98 / MANY))
    assert set(draws("worker 0: 0% +4s")) == {0.0}
    assert set(draws("worker 0: 100% +4s")) == {4.0}


def test_a_factor_from_a_range_is_uniform() -> None:
    for text, low, high in (("worker 0: 1x-5x", 0.0, 4.0), ("worker 0: +500ms-1500ms", 0.5, 1.5)):
        drawn = sorted(draws(text))
        assert low <= drawn[0] <= drawn[-1] <= high
        off = max(abs((value - low) / (high - low) - place / MANY) for place, value in enumerate(drawn))
        assert off < 1.95 / math.sqrt(MANY)  # Kolmogorov and Smirnov, one in a thousand


def test_a_lognormal_factor_has_its_sigma_and_the_median_one() -> None:
    factors = [1 + more for more in draws("worker 0: lognormal 0.5")]
    assert median(factors) == pytest.approx(1, abs=0.02)
    assert min(factors) == 1  # nothing is made faster
    for share in (0.6, 0.8, 0.95):
        expected = math.exp(0.5 * NormalDist().inv_cdf(share))
        assert sorted(factors)[int(share * MANY)] == pytest.approx(expected, rel=0.04)


def test_the_same_seed_draws_the_same_and_another_does_not() -> None:
    assert draws("worker 0: 1x-5x", count=100, seed=7) == draws("worker 0: 1x-5x", count=100, seed=7)
    assert abs(correlation(draws("worker 0: 1x-5x", seed=7), draws("worker 0: 1x-5x", seed=8))) < 0.04


def test_nodes_roles_and_texts_draw_independently() -> None:
    one = draws("worker *: 1x-5x", number=0)
    server = delays("server *: 1x-5x", role="server", number=0)
    alike = [both - first for both, first in zip(draws("worker *: 1x-5x", "worker 0: 1x-5x"), one, strict=True)]
    for other in (
        draws("worker *: 1x-5x", number=1),
        [server.after(1.0, 0.0) for _ in range(MANY)],
        draws("worker *: 1x-4x", number=0),
        alike,
        [*one[1:], one[0]],
    ):
        assert abs(correlation(one, other)) < 0.04


def test_whether_and_how_much_are_drawn_independently() -> None:
    happened = [more for more in draws("worker 0: 25% 1x-5x") if more]
    assert fmean(happened) == pytest.approx(2, abs=0.1)


@given(seed=st.integers(-(2**63), 2**64), number=st.integers(0, 5), nth=st.integers(0, 10**6))
def test_another_text_and_who_else_is_slow_leave_a_draw_as_it_is(seed: int, number: int, nth: int) -> None:
    alone = delays(f"worker {number}: 1x-5x", number=number, seed=seed).of(nth, 1.0, 0.0)
    everyone = delays("worker *: 1x-5x", number=number, seed=seed).of(nth, 1.0, 0.0)
    with_another = delays("worker *: 8x for 1s", "worker *: 1x-5x", number=number, seed=seed).of(nth, 1.0, 5.0)
    assert alone == everyone == with_another


def test_after_counts_the_iterations_that_of_is_asked_for() -> None:
    drawer = delays("worker 0: 1x-5x")
    assert [drawer.after(1.0, 0.0) for _ in range(50)] == [drawer.of(nth, 1.0, 0.0) for nth in range(50)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("worker 7: 5x", "'worker 7: 5x': there is no worker 7 in a run of 4; it has numbers 0 to 3"),
        ("worker 4: 5x", "no worker 4 in a run of 4"),
        ("workers 0,2-9: 5x", "no worker 4 in a run of 4"),
        ("workers 6-9: 5x", "no worker 6 in a run of 4"),
        ("server 1: 5x", "no server 1 in a run of 1; it has number 0 only"),
    ],
)
def test_slowing_down_somebody_who_is_not_there_is_an_error(text: str, says: str) -> None:
    with pytest.raises(SlownessError) as caught:
        check([parse("worker 0: 2x"), parse(text)], workers=4, servers=1)
    assert says in str(caught.value)


def test_everyone_who_is_there_can_be_slow() -> None:
    check([parse(text) for text in ("worker *: 5x", "workers 0-3: 2x", "server 0: 2x", "server *: 2x")], 4, 1)
