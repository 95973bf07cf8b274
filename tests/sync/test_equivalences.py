"""Models that must be the same: equal decisions on equal events, however these are interleaved."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import Advance, Apply, Command, Drop, Event, Grant, Hold, Shard
from paceline.sync.invariants import Watch
from paceline.sync.models.base import UpdateRule
from tests.cluster import Choose, Cluster
from tests.effort import cases

# Each pair, with N for the number of workers. Where the update rules differ by default, both sums are made alike.
PAIRS = [
    ("ssp(s=0)", "bsp"),
    ("ssp(s=0, release=soft)", "bsp"),
    ("ssp(s=inf)", "asp"),
    ("dc_asgd", "asp"),
    ("pssp(s=0, c=1)", "ssp(s=0)"),
    ("pssp(s=1, c=1)", "ssp(s=1)"),
    ("pssp(s=3, c=1)", "ssp(s=3)"),
    ("pssp(s=2, c=1, release=soft)", "ssp(s=2, release=soft)"),
    ("pssp(s=2, c=0)", "asp"),
    ("elastic_bsp(R=1)", "bsp"),
    ("elastic_bsp(R=1, predict=last)", "bsp"),
    ("psp(c=N, b=1.0, tau_push=0, tau_pull=0)", "bsp"),
    ("esync(max_steps=1)", "bsp"),
    ("drop(n_t=N)", "bsp"),
    ("dsps(s_min=2, s_max=2)", "ssp(s=2)"),
    ("dssp(s_low=2, s_high=2)", "ssp(s=2)"),
    ("dssp(s_low=1, s_high=1, release=soft)", "ssp(s=1, release=soft)"),
]


def decisions(commands: Sequence[Command]) -> list[tuple[object, ...]]:
    """What was decided, without the name of the rule and without ElasticBSP's plan."""
    found: list[tuple[object, ...]] = []
    for command in commands:
        match command:
            case Grant():
                found.append(("grant", command.worker, command.iteration, command.version, command.clock, command.next))
            case Hold():
                found.append(("hold", command.worker, command.iteration))
            case Apply():
                found.append(("apply", command.worker, command.iteration, command.staleness, command.round))
            case Drop():
                found.append(("drop", command.worker, command.iteration, command.reason.cause))
            case Advance():
                found.append(("advance", command.iteration, command.to, command.gradients, command.version))
    return found


class Twins:
    """Two shards that get the same events and must decide the same."""

    def __init__(self, one: Shard, other: Shard) -> None:
        self.one = Watch(one)
        self.other = Watch(other)
        self.events = 0

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = self.one.handle(event, now)
        assert decisions(commands) == decisions(self.other.handle(event, now))
        assert self.one.shard.clock == self.other.shard.clock
        self.events += 1
        return commands


def twins(pair: tuple[str, str], workers: int, seed: int, n: int | None = None, index: int = 0) -> Twins:
    update: UpdateRule | None = "round" if "bsp" in pair else None
    one, other = (
        Shard(text.replace("N", str(n or workers)), workers, seed, index=index, update=update) for text in pair
    )
    return Twins(one, other)


@pytest.mark.parametrize("pair", PAIRS, ids=" is ".join)
@given(choices=st.lists(st.integers(0, 30), max_size=150), workers=st.integers(1, 5), seed=st.integers(0, 2**32))
@settings(max_examples=cases(150), deadline=None)
def test_equal_events_get_equal_decisions(pair: tuple[str, str], choices: list[int], workers: int, seed: int) -> None:
    pair_of = twins(pair, workers, seed)
    Cluster([pair_of], workers, 6, replay(choices)).run()
    assert pair_of.events >= 2 * workers * 6  # a push and a pull for every iteration


@pytest.mark.parametrize("pair", PAIRS, ids=" is ".join)
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 5), shards=st.integers(2, 5))
@settings(max_examples=cases(40), deadline=None)
def test_they_are_equal_on_every_one_of_several_shards(
    pair: tuple[str, str], seed: int, workers: int, shards: int
) -> None:
    pairs = [twins(pair, workers, seed, index=index) for index in range(shards)]
    Cluster(pairs, workers, 6, Random(seed).randrange).run()


@pytest.mark.parametrize("pair", PAIRS, ids=" is ".join)
@given(seed=st.integers(0, 2**32), workers=st.integers(2, 5))
@settings(max_examples=cases(60), deadline=None)
def test_they_stay_equal_when_workers_come_and_go(pair: tuple[str, str], seed: int, workers: int) -> None:
    # A gradient of a worker that died counts for psp's c, so c = N is not enough to wait for everyone who is left.
    random = Random(seed)
    running = Cluster([twins(pair, workers, seed, n=1000)], workers, 8, random.randrange)
    for _ in range(8):
        for _ in range(random.randrange(25)):
            running.step()
        if running.dead and random.random() < 0.5:
            running.restart(random.choice(running.dead))
        elif len(running.alive) > 1:
            running.kill(random.choice(running.alive))
    running.run()


@pytest.mark.parametrize(
    "pair",
    [
        ("ssp(s=1)", "bsp"),
        ("ssp(s=2)", "ssp(s=3)"),
        ("ssp(s=2, release=soft)", "ssp(s=2)"),
        ("pssp(s=1, c=0.9)", "ssp(s=1)"),
        ("ssp(s=4)", "asp"),
        ("elastic_bsp(R=2)", "bsp"),
        ("psp(c=2)", "bsp"),
        ("drop(n_t=2)", "bsp"),
        ("dssp(s_low=1, s_high=2)", "ssp(s=1)"),
    ],
    ids=" is not ".join,
)
def test_models_that_are_not_the_same_are_told_apart(pair: tuple[str, str]) -> None:
    """The comparison can fail: neighbouring models do differ on some interleaving."""
    with pytest.raises(AssertionError):
        for seed in range(200):
            random = Random(seed)
            unevenly = lambda n: int(random.random() ** 3 * n)  # noqa: E731, B023
            Cluster([twins(pair, 3, seed)], 3, 15, unevenly).run()


def replay(choices: list[int]) -> Choose:
    """Take the choices one after another, then always the last: hypothesis can shrink such a run."""
    remaining = iter(choices)
    return lambda n: next(remaining, n - 1) % n
