"""What every synchronization model must do, whatever its rule: one suite for all of them.

A new model is tested here by being registered: `Model.examples` says under which parameters.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import MODELS, parse
from tests.cluster import Cluster, watched
from tests.effort import cases

ALL = [expression for model in MODELS.values() for expression in model.examples]
LOCAL = [expression for expression in ALL if not parse(expression).everywhere]


def test_every_registered_model_has_examples_of_itself() -> None:
    for model in MODELS.values():
        assert {type(parse(expression)) for expression in model.examples} == {model}


def cluster(models: list[str], workers: int, iterations: int, random: Random, **options: float) -> Cluster:
    return Cluster(
        watched(models, workers, seed=random.randrange(1000)),
        workers,
        iterations,
        random.randrange,
        significance=lambda worker, iteration: ((worker * 7 + iteration * 3) % 10) / 10,
        **options,
    )


@pytest.mark.parametrize("expression", ALL)
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 6), shards=st.integers(1, 8))
@settings(max_examples=cases(15), deadline=None)
def test_all_workers_come_to_their_end(expression: str, seed: int, workers: int, shards: int) -> None:
    cluster([expression] * shards, workers, 6, Random(seed)).run()


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 6),
    models=st.lists(st.sampled_from(LOCAL), min_size=1, max_size=8),
)
@settings(max_examples=cases(250), deadline=None)
def test_shards_under_different_models_never_deadlock(seed: int, workers: int, models: list[str]) -> None:
    cluster(models, workers, 6, Random(seed)).run()


@given(
    seed=st.integers(0, 2**32),
    model=st.sampled_from(LOCAL),
    shards=st.integers(1, 6),
    b=st.sampled_from([0.3, 0.5, 0.9]),
    tau=st.sampled_from([0.0, 4.0]),
)
@settings(max_examples=cases(200), deadline=None)
def test_workers_that_start_without_all_blocks_come_to_their_end(
    seed: int, model: str, shards: int, b: float, tau: float
) -> None:
    cluster([model] * shards, 4, 6, Random(seed), b=b, tau=tau).run()


@pytest.mark.parametrize("expression", ALL)
@given(seed=st.integers(0, 2**32), shards=st.integers(1, 4))
@settings(max_examples=cases(20), deadline=None)
def test_deaths_restarts_and_repeated_messages_lose_nothing(expression: str, seed: int, shards: int) -> None:
    random = Random(seed)
    running = cluster([expression] * shards, 4, 8, random)
    for _ in range(12):
        for _ in range(random.randrange(20)):
            running.step()
        with_faults(running, random)
    running.run()


@given(
    seed=st.integers(0, 2**32),
    first=st.sampled_from(ALL),
    then=st.lists(st.sampled_from(ALL), min_size=1, max_size=4),
    shards=st.integers(1, 4),
)
@settings(max_examples=cases(300), deadline=None)
def test_the_model_can_be_changed_at_any_time(seed: int, first: str, then: list[str], shards: int) -> None:
    random = Random(seed)
    running = cluster([first] * shards, 4, 10, random)
    for expression in then:
        for _ in range(random.randrange(60)):
            running.step()
        running.set_model(expression)
        if random.random() < 0.3:
            with_faults(running, random)
    running.run()


@given(seed=st.integers(0, 2**32), models=st.lists(st.sampled_from(LOCAL), min_size=2, max_size=5))
@settings(max_examples=cases(100), deadline=None)
def test_the_model_of_one_shard_can_be_changed_alone(seed: int, models: list[str]) -> None:
    random = Random(seed)
    running = cluster(models, 4, 8, random)
    for expression in models[::-1]:
        for _ in range(random.randrange(50)):
            running.step()
        running.set_model(expression, shards=[random.randrange(len(models))])
    running.run()


def with_faults(running: Cluster, random: Random) -> None:
    fault = random.randrange(4)
    if fault == 0 and len(running.alive) > 1:
        running.kill(random.choice(running.alive))
    elif fault == 1 and running.dead:
        running.restart(random.choice(running.dead))
    elif fault == 2 and running.alive:
        worker = random.choice(running.alive)
        running.kill(worker)
        running.restart(worker)
    else:
        running.repeat(random.randrange(100))
