"""PSSP's coin: the share of held pulls follows the formula, and the coin is one for all shards."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, sqrt

import pytest

from paceline.sync import Hold, Pulled, Pushed, Shard
from paceline.sync.coin import coin

PULLS = 20_000


def held_share(expression: str, gap: int, seed: int, significance: float = 0.0) -> float:
    """Worker 0 never moves, the others run ahead of it by the gap: how many of them are held there?"""
    shard = Shard(expression, PULLS + 1, seed)
    held = 0
    for worker in range(1, PULLS + 1):
        shard.handle(Pushed(worker, gap, significance=significance), 0.0)
        held += isinstance(shard.handle(Pulled(worker, gap), 0.0)[0], Hold)
    return held / PULLS


def within_four_sigma(share: float, p: float) -> bool:
    return abs(share - p) <= 4 * sqrt(p * (1 - p) / PULLS)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("s", "c"), [(0, 0.1), (1, 0.3), (3, 0.5), (3, 0.9), (10, 1 / 3)])
def test_constant_pssp_holds_with_probability_c(s: int, c: float, seed: int) -> None:
    for gap in (s, s + 4):
        assert within_four_sigma(held_share(f"pssp(s={s}, c={c})", gap, seed), c)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("s", "alpha"), [(0, 0.5), (2, 0.8), (3, 1.0)])
def test_dynamic_pssp_holds_the_more_the_larger_the_gap(s: int, alpha: float, seed: int) -> None:
    for gap in (s, s + 1, s + 3):
        expected = alpha / (1 + exp(s - gap))
        assert within_four_sigma(held_share(f"pssp(s={s}, alpha={alpha})", gap, seed), expected)


@pytest.mark.parametrize("significance", [0.05, 0.4])
def test_with_significance_a_stronger_gradient_waits_more(significance: float) -> None:
    share = held_share("pssp(s=1, alpha=significance)", 3, 7, significance)
    assert within_four_sigma(share, significance / (1 + exp(1 - 3)))


@pytest.mark.parametrize("s", [1, 3])
def test_nobody_is_held_below_s(s: int) -> None:
    assert held_share(f"pssp(s={s}, c=1)", s - 1, 3) == 0.0
    assert held_share(f"pssp(s={s}, c=1)", s, 3) == 1.0


def test_one_coin_for_all_shards_and_a_coin_for_each_if_asked() -> None:
    """With a coin per shard, eight shards at c = 0.5 let 1 pull in 256 through all of them; with one coin, half."""
    for kind, expected in (("worker", 0.5), ("shard", 0.5**8)):
        model = f"pssp(s=2, c=0.5, coin={kind})"
        shards = [Shard(model, PULLS + 1, 11, index=index) for index in range(8)]
        passed = 0
        for worker in range(1, PULLS + 1):
            for shard in shards:
                shard.handle(Pushed(worker, 5), 0.0)
            passed += not any(isinstance(shard.handle(Pulled(worker, 5), 0.0)[0], Hold) for shard in shards)
        assert within_four_sigma(passed / PULLS, expected)


def test_the_coin_is_uniform_in_every_direction() -> None:
    """Over workers, over iterations and over seeds: ten bins, each within four sigma."""
    draws: list[Callable[[int], float]] = [
        lambda i: coin(1, i, 5, -1),
        lambda i: coin(1, 5, i, -1),
        lambda i: coin(i, 5, 5, -1),
        lambda i: coin(1, i % 100, i // 100, -1),
    ]
    for draw in draws:
        bins = [0] * 10
        for i in range(PULLS):
            bins[int(draw(i) * 10)] += 1
        assert all(within_four_sigma(count / PULLS, 0.1) for count in bins)


def test_the_same_pull_has_the_same_coin_on_every_replay() -> None:
    assert coin(3, 4, 5, -1) == coin(3, 4, 5, -1)
    assert len({coin(seed, 4, 5, -1) for seed in range(100)}) == 100
