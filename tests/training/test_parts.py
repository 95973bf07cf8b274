"""Which samples are whose: disjoint, complete, reproducible, and in the proportions that were asked for."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from paceline.training.parts import (
    Indices,
    ShardError,
    class_numbers,
    even_part,
    proportions,
    stream,
    uneven_parts,
)
from tests.effort import cases

sizes = st.integers(1, 300)
worlds = st.integers(1, 12)
seeds = st.integers(-(2**63), 2**64 - 1)
epochs = st.integers(0, 1000)


def even_parts(size: int, world_size: int, seed: int, epoch: int, shuffle: bool) -> list[Indices]:
    return [
        even_part(size, rank=rank, world_size=world_size, seed=seed, epoch=epoch, shuffle=shuffle)
        for rank in range(world_size)
    ]


@given(size=sizes, world_size=worlds, seed=seeds, epoch=epochs, shuffle=st.booleans())
@settings(max_examples=cases(300), deadline=None)
def test_even_parts_are_equal_disjoint_and_all_but_the_remainder(
    size: int, world_size: int, seed: int, epoch: int, shuffle: bool
) -> None:
    parts = even_parts(size, world_size, seed, epoch, shuffle)
    assert {len(part) for part in parts} == {size // world_size}
    together = np.concatenate(parts).tolist()
    assert len(set(together)) == len(together) == size - size % world_size
    assert set(together) <= set(range(size))
    again = even_parts(size, world_size, seed, epoch, shuffle)
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


@given(size=st.integers(30, 300), seed=seeds, epoch=epochs)
@settings(max_examples=cases(100), deadline=None)
def test_shuffled_parts_differ_by_epoch_and_by_seed(size: int, seed: int, epoch: int) -> None:
    def first(seed: int, epoch: int) -> list[int]:
        return list(even_part(size, rank=0, world_size=2, seed=seed, epoch=epoch, shuffle=True))

    assert first(seed, epoch) != first(seed, epoch + 1)
    assert first(seed, epoch) != first(seed + 1, epoch)
    assert first(seed, epoch) != sorted(first(seed, epoch))


@given(size=sizes, world_size=worlds, seed=seeds, epoch=epochs)
@settings(max_examples=cases(100), deadline=None)
def test_without_shuffling_a_part_is_in_order_and_spread_over_everything(
    size: int, world_size: int, seed: int, epoch: int
) -> None:
    for rank, part in enumerate(even_parts(size, world_size, seed, epoch, shuffle=False)):
        assert part.tolist() == sorted(part)
        if size % world_size == 0:
            assert part.tolist() == list(range(rank, size, world_size))


@given(size=st.integers(1, 60), world_size=worlds)
@settings(max_examples=cases(100), deadline=None)
def test_in_order_everything_is_left_out_equally_often(size: int, world_size: int) -> None:
    seen: Counter[int] = Counter()
    for epoch in range(size):
        seen.update(np.concatenate(even_parts(size, world_size, 0, epoch, shuffle=False)).tolist())
    assert [seen[number] for number in range(size)] == [size - size % world_size] * size


def test_what_a_permutation_leaves_out_is_no_sample_in_particular() -> None:
    left: Counter[int] = Counter()
    for epoch in range(2000):
        left.update(set(range(11)) - set(np.concatenate(even_parts(11, 4, 0, epoch, shuffle=True)).tolist()))
    assert min(left[number] for number in range(11)) > 400  # 545 each on average
    assert sum(left.values()) == 2000 * 3


@given(
    labels=st.lists(st.integers(-3, 5), min_size=1, max_size=200),
    world_size=worlds,
    alpha=st.floats(1e-6, 1e6),
    seed=seeds,
    least=st.integers(1, 5),
)
@settings(max_examples=cases(300), deadline=None)
def test_uneven_parts_are_disjoint_and_complete_and_nobody_is_left_without(
    labels: list[int], world_size: int, alpha: float, seed: int, least: int
) -> None:
    assume(len(labels) >= world_size * least)
    parts = uneven_parts(labels, world_size=world_size, alpha=alpha, seed=seed, least=least)
    assert len(parts) == world_size
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert min(map(len, parts)) >= least
    assert all(part.tolist() == sorted(part) for part in parts)
    again = uneven_parts(labels, world_size=world_size, alpha=alpha, seed=seed, least=least)
    assert all((one == other).all() for one, other in zip(parts, again, strict=True))


def shares(alpha: float, seed: int = 0) -> np.ndarray:
    """The share that each of 5 workers has of each of 10 classes."""
    labels = np.tile(np.arange(10), 1000)
    parts = uneven_parts(labels, world_size=5, alpha=alpha, seed=seed)
    return np.array([np.bincount(labels[part], minlength=10) for part in parts]) / 1000


def test_a_small_alpha_gives_a_class_to_few_and_a_large_one_to_all() -> None:
    assert np.abs(shares(1e6) - 0.2).max() < 0.01
    for alpha, largest in ((0.01, 0.974), (0.1, 0.810), (1, 0.457), (10, 0.278)):  # the means of Dirichlet's largest
        drawn = np.concatenate([shares(alpha, seed).max(axis=0) for seed in range(20)])
        assert drawn.mean() == pytest.approx(largest, abs=4 * drawn.std() / math.sqrt(len(drawn)) + 0.001)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 2.0])
def test_the_shares_spread_as_dirichlets_do(alpha: float) -> None:
    drawn = np.concatenate([shares(alpha, seed).ravel() for seed in range(60)])
    variance = 0.2 * 0.8 / (5 * alpha + 1)
    assert drawn.mean() == pytest.approx(0.2, abs=1e-9)
    assert drawn.var() == pytest.approx(variance, rel=0.12)


def test_with_alpha_one_a_share_is_distributed_as_it_should() -> None:
    """One of 5 shares from Dirichlet(1) is below x with probability 1 - (1 - x)^4."""
    random, count = stream(0, 9), 4000
    drawn = np.sort([proportions(random, 5, 1.0)[0] for _ in range(count)])
    off = np.abs(1 - (1 - drawn) ** 4 - np.arange(count) / count).max()
    assert off < 1.95 / math.sqrt(count)  # Kolmogorov and Smirnov, one in a thousand


def test_which_samples_of_a_class_one_has_is_random_too() -> None:
    parts = uneven_parts([0] * 1000, world_size=2, alpha=1e6, seed=0)
    low = (parts[0] < 500).mean()
    assert 0.4 < low < 0.6


def test_another_seed_gives_other_parts() -> None:
    assert not np.array_equal(shares(1.0, seed=1), shares(1.0, seed=2))
    assert not np.array_equal(shares(1.0, seed=1), shares(1.0, seed=1 + 2**32))


@given(count=st.integers(1, 50), alpha=st.floats(1e-6, 1e6), seed=seeds)
@settings(max_examples=cases(200), deadline=None)
def test_proportions_add_up_however_small_alpha_is(count: int, alpha: float, seed: int) -> None:
    drawn = proportions(stream(seed, 9), count, alpha)
    assert (drawn >= 0).all()
    assert math.fsum(drawn) == pytest.approx(1)


def test_the_streams_are_those_of_every_version_of_numpy() -> None:
    """Pinned: were they to change, workers with another version would have other parts."""
    assert even_part(10, rank=0, world_size=2, seed=7, epoch=3, shuffle=True).tolist() == [2, 4, 5, 8, 0]
    parts = uneven_parts([0, 1] * 5, world_size=2, alpha=0.5, seed=7)
    assert [part.tolist() for part in parts] == [[0], [1, 2, 3, 4, 5, 6, 7, 8, 9]]


@pytest.mark.parametrize("alpha", [0, -1, math.nan, math.inf, 1e-7, 1e7, "0.1"])
def test_an_alpha_that_cannot_be_is_named(alpha: float) -> None:
    with pytest.raises(ShardError, match=r"alpha is .*it is a number from 1e-06 to 1e\+06"):
        uneven_parts([0, 1], world_size=2, alpha=alpha, seed=0)


def test_too_few_samples_are_told() -> None:
    with pytest.raises(ShardError, match="5 samples are too few for 3 workers: each needs at least 2"):
        uneven_parts([0] * 5, world_size=3, alpha=1, seed=0, least=2)


def test_classes_may_be_numbers_truth_values_or_names() -> None:
    for labels in ([3, 7, 3], [False, True, False], ["cat", "dog", "cat"], np.array([0, 255, 0], dtype=np.uint8)):
        assert class_numbers(labels).tolist() == [0, 1, 0]


@pytest.mark.parametrize("labels", [[0.5, 1.5], [[0, 1], [1, 0]], 3, [None, 1]])
def test_what_names_no_classes_is_told(labels: list[object]) -> None:
    with pytest.raises(ShardError, match="name no classes"):
        class_numbers(labels)  # type: ignore[arg-type]
