"""The shard against FluentPS's algorithm 1: the same messages, the same answers."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import Apply, Command, Drop, Grant, Pulled, Pushed, Shard
from paceline.sync.coin import coin
from tests.oracles import fluentps as paper

releases = st.sampled_from(["lazy", "soft"])
bounds = st.integers(0, 5)


class Run(NamedTuple):
    """A run of well-formed workers: who acts next, and how long after the last, two bytes for each event."""

    workers: int
    shares: list[int]  # how often each worker gets a turn, against the others
    turns: bytes
    shard: int  # which of the shards it is
    seed: int
    significances: list[float]


@st.composite
def runs(draw: st.DrawFn) -> Run:
    n = draw(st.integers(1, 6))
    shares = draw(st.lists(st.sampled_from([1, 2, 4, 12]), min_size=n, max_size=n))
    significances = draw(st.lists(st.floats(0, 2), min_size=1, max_size=5))
    turns = draw(st.binary(min_size=120, max_size=400))
    return Run(n, shares, turns, draw(st.integers(0, 3)), draw(st.integers(0, 2**64 - 1)), significances)


class Pair:
    """A shard and the paper's server, side by side, and the workers that talk to both."""

    def __init__(self, run: Run, model: str, conditions: paper.Conditions, release: str) -> None:
        self.run = run
        self.shard = Shard(model, run.workers, run.seed, index=run.shard)
        self.server = paper.Server(run.workers, conditions, "progress" if release == "lazy" else "V_train")
        self.now = 0.0
        self.todo: dict[int, tuple[str, int]] = dict.fromkeys(range(run.workers), ("push", 0))  # who is not waiting
        self.pushes = 0
        self.late: list[tuple[int, int]] = []

    def play(self) -> None:
        tickets = [n for n, share in enumerate(self.run.shares) for _ in range(share)]
        for turn, pause in zip(self.run.turns[::2], self.run.turns[1::2], strict=False):
            assert self.todo, "every worker waits"
            n = tickets[turn % len(tickets)]
            while n not in self.todo:
                n = (n + 1) % self.run.workers
            self.now += pause / 16
            self.act(n)

    def act(self, n: int) -> None:
        kind, i = self.todo[n]
        if kind == "push":
            significance = self.run.significances[self.pushes % len(self.run.significances)]
            self.pushes += 1
            self.server.significance[n] = significance
            commands = self.shard.handle(Pushed(n, i, significance=significance), self.now)
            self.late += [(n, i)] if i < self.server.V_train else []
            self.server.PushHandler(n, i)
            self.todo[n] = "pull", i
            assert [(c.worker, c.iteration) for c in commands if isinstance(c, Apply | Drop)] == [(n, i)]
        else:
            commands = self.shard.handle(Pulled(n, i), self.now)
            self.server.PullHandler(n, i)
            del self.todo[n]
        self.compare(commands)

    def compare(self, commands: list[Command]) -> None:
        grants = [command for command in commands if isinstance(command, Grant)]
        pulls = sorted((grant.worker, grant.iteration) for grant in grants)
        assert pulls == sorted(pull for pull, _ in self.server.responses)
        assert sorted((held.worker, held.iteration) for held in self.shard.held) == sorted(self.server.waiting)
        assert self.shard.waiting == len(self.server.waiting)
        assert self.shard.clock == self.server.V_train
        self.compare_gradients(commands, grants)
        self.server.responses.clear()
        for grant in grants:
            self.todo[grant.worker] = "push", grant.next

    def compare_gradients(self, commands: list[Command], grants: list[Grant]) -> None:
        """Every gradient is applied on arrival, and a granted worker reads exactly those that the paper's reads."""
        assert not any(isinstance(command, Drop) for command in commands)
        gradients = dict(self.server.responses)
        for grant in grants:
            assert grant.version == gradients[grant.worker, grant.iteration]
            assert grant.next == grant.iteration + 1


class PairWithOneBound(Pair):
    """The paper leaves open how DSPS sets `s`: its server is told before each message which one is in force."""

    def act(self, n: int) -> None:
        self.server.s = self.shard.view.memory.s
        super().act(n)


class RoundPair(Pair):
    """The same under a model whose gradients are summed by round: closed rounds are what a granted worker reads."""

    def compare_gradients(self, commands: list[Command], grants: list[Grant]) -> None:
        dropped = [c for c in commands if isinstance(c, Drop)]
        assert all(drop.reason.cause == "late" for drop in dropped)
        assert [(drop.worker, drop.iteration) for drop in dropped] == self.late
        self.late.clear()
        for grant in grants:
            assert grant.version == self.server.V_train
            assert grant.next == max(grant.iteration + 1, self.server.V_train)


@given(runs(), releases)
@settings(max_examples=250, deadline=None)
def test_bsp_answers_as_table_3_has_it(run: Run, release: str) -> None:
    RoundPair(run, f"bsp(release={release})", paper.BSP, release).play()


@given(runs())
@settings(max_examples=200, deadline=None)
def test_asp_answers_as_table_3_has_it(run: Run) -> None:
    Pair(run, "asp", paper.ASP, "lazy").play()


@given(runs(), bounds, releases)
@settings(max_examples=250, deadline=None)
def test_ssp_answers_as_table_3_has_it(run: Run, s: int, release: str) -> None:
    Pair(run, f"ssp(s={s}, release={release})", paper.SSP(s), release).play()


@given(runs(), releases)
@settings(max_examples=100, deadline=None)
def test_ssp_without_a_bound_answers_as_table_3_has_asp(run: Run, release: str) -> None:
    Pair(run, f"ssp(s=inf, release={release})", paper.ASP, release).play()


@pytest.mark.parametrize("release", ["lazy", "soft"])
@given(run=runs(), s_min=bounds, extra=bounds)
@settings(max_examples=250, deadline=None)
def test_dsps_answers_as_table_3_has_it_for_the_s_in_force(run: Run, s_min: int, extra: int, release: str) -> None:
    model = f"dsps(s_min={s_min}, s_max={s_min + extra}, release={release})"
    PairWithOneBound(run, model, paper.DSPS, release).play()


@given(runs(), st.data(), releases)
@settings(max_examples=250, deadline=None)
def test_drop_answers_and_drops_as_table_3_has_it(run: Run, data: st.DataObject, release: str) -> None:
    n_t = data.draw(st.integers(1, run.workers))
    RoundPair(run, f"drop(n_t={n_t}, release={release})", paper.DropStragglers(n_t), release).play()


@given(runs(), bounds, st.floats(0, 1), releases)
@settings(max_examples=250, deadline=None)
def test_constant_pssp_answers_as_table_3_has_it(run: Run, s: int, c: float, release: str) -> None:
    conditions = paper.PSSP(s, paper.constant(s, c), lambda pull: coin(run.seed, *pull, -1))
    Pair(run, f"pssp(s={s}, c={c!r}, release={release})", conditions, release).play()


@given(runs(), bounds, st.floats(0.01, 2), releases)
@settings(max_examples=250, deadline=None)
def test_dynamic_pssp_answers_as_table_3_has_it(run: Run, s: int, alpha: float, release: str) -> None:
    conditions = paper.PSSP(s, paper.dynamic(s, lambda *_: alpha), lambda pull: coin(run.seed, *pull, -1))
    Pair(run, f"pssp(s={s}, alpha={alpha!r}, release={release})", conditions, release).play()


@given(runs(), bounds, releases)
@settings(max_examples=250, deadline=None)
def test_dynamic_pssp_answers_as_table_3_has_it_with_the_last_gradients_significance(
    run: Run, s: int, release: str
) -> None:
    conditions = paper.PSSP(s, paper.dynamic(s, paper.significance), lambda pull: coin(run.seed, *pull, -1))
    Pair(run, f"pssp(s={s}, alpha=significance, release={release})", conditions, release).play()


@given(runs(), bounds, st.floats(0, 1), releases)
@settings(max_examples=200, deadline=None)
def test_pssp_with_the_papers_coin_has_one_of_its_own_on_every_shard(run: Run, s: int, c: float, release: str) -> None:
    conditions = paper.PSSP(s, paper.constant(s, c), lambda pull: coin(run.seed, *pull, run.shard))
    Pair(run, f"pssp(s={s}, c={c!r}, coin=shard, release={release})", conditions, release).play()
