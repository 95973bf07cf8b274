"""The bookkeeping of who is where, against the same kept in the plainest way."""

from __future__ import annotations

import gc

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.sync import Pulled, Shard
from paceline.sync.progress import LOOKED_AT, NAMED, Held, Member, Progress
from tests.effort import cases


class AgainstAPlainDictionary(RuleBasedStateMachine):
    """`Progress` and a dictionary from worker to iteration, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress()
        self.at: dict[int, int] = {}
        self.names = 0

    @rule(ahead=st.integers(0, 5))
    def join(self, ahead: int) -> None:
        start = self.progress.clock + ahead
        self.progress.add(self.names, 0, start, 0)
        self.at[self.names] = start
        self.names += 1

    @precondition(lambda self: self.at)
    @rule(which=st.integers(0, 99), by=st.sampled_from([1, 1, 1, 1, 2, 7, 10**15]))
    def push(self, which: int, by: int) -> None:
        worker = sorted(self.at)[which % len(self.at)]
        self.at[worker] += by
        self.progress.move(self.progress.members[worker], self.at[worker])

    @precondition(lambda self: self.at)
    @rule(which=st.integers(0, 99))
    def leave(self, which: int) -> None:
        worker = sorted(self.at)[which % len(self.at)]
        self.progress.remove(self.progress.members[worker])
        del self.at[worker]

    @precondition(lambda self: self.at and max(self.at.values()) > self.progress.clock)
    @rule()
    def close(self) -> None:
        expected = min(at for at in self.at.values() if at > self.progress.clock)
        to = self.progress.next_round()
        assert to == expected or (to == self.progress.clock + 1 and to <= expected)
        self.progress.advance(to)

    @invariant()
    def everything_agrees(self) -> None:
        clock = self.progress.clock
        assert self.progress.passed == sum(at > clock for at in self.at.values())
        for iteration in (clock - 1, clock, clock + 1, clock + 3):
            assert self.progress.count(iteration) == sum(at > iteration for at in self.at.values())
        if not self.at:
            return
        assert self.progress.slowest == min(self.at.values())
        assert self.progress.fastest == max(self.at.values())
        laggards = self.progress.laggards()
        where = clock if clock in self.at.values() else min(self.at.values())
        there = {worker for worker, at in self.at.items() if at == where}
        assert set(laggards) <= there
        assert len(set(laggards)) == len(laggards)
        assert 1 <= len(laggards) <= NAMED
        if self.names <= LOOKED_AT:
            assert len(laggards) == min(len(there), NAMED)


AgainstAPlainDictionary.TestCase.settings = settings(max_examples=cases(150), stateful_step_count=40, deadline=None)
TestProgress = AgainstAPlainDictionary.TestCase


@settings(max_examples=cases(100), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(1, 5)), max_size=30))
def test_the_last_intervals_are_kept_in_order_however_many_are_wanted(noted: list[tuple[float, int]]) -> None:
    member = Member(0, 0, 0, 0)
    kept: list[float] = []
    for interval, wanted in noted:
        member.time(interval, wanted)
        kept = [*kept, interval][-wanted:]
        assert member.recent() == tuple(kept)


@settings(max_examples=cases(100), deadline=None)
@given(st.lists(st.integers(-1, 20), max_size=40))
def test_held_pulls_may_be_answered_in_any_order(steps: list[int]) -> None:
    """A step of -1 holds another pull, one from 0 answers one of those that wait."""
    member = Member(0, 0, 0, 0)
    waiting: list[Held] = []
    for step in steps:
        if step < 0 or not waiting:
            member.held = Held(Pulled(0, len(waiting)), 0.0, member.held)
            waiting.append(member.held)
        else:
            member.answer(waiting.pop(step % len(waiting)))
        assert all(found is held for found, held in zip(member.waiting(), waiting, strict=True))


def test_a_shard_that_goes_while_pulls_are_held_leaves_nothing_behind() -> None:
    """The garbage collector does not look into a held pull, so there must be no way from it back to its member."""

    def members() -> int:
        gc.collect()
        return sum(type(thing) is Member for thing in gc.get_objects())

    before = members()
    shard = Shard("bsp", workers=3)
    for worker in range(3):
        shard.handle(Pulled(worker, 0), now=0.0)
    assert (shard.waiting, members()) == (3, before + 3)
    del shard
    assert members() == before
