"""What workers were given, against a copy for each of them."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params.backups import Backups
from tests.effort import cases

SIZE = 3
WORKERS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("give"), st.integers(0, WORKERS - 1)),
        st.tuples(st.just("give"), st.integers(0, WORKERS - 1)),
        st.tuples(st.just("update"), st.just(0)),
        st.tuples(st.just("update"), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, WORKERS - 1)),
        st.tuples(st.just("replace"), st.integers(0, WORKERS - 1)),
    ),
    max_size=60,
)


class Naive:
    """Beside the backups, a copy of its own for each worker."""

    def __init__(self) -> None:
        self.backups = Backups()
        self.values = torch.zeros(SIZE)
        self.lives = dict.fromkeys(range(WORKERS), 0)
        self.has: dict[int, torch.Tensor] = {}

    def give(self, worker: int) -> None:
        self.backups.give(worker, self.lives[worker])
        self.has[worker] = self.values.clone()

    def update(self, _: int) -> None:
        self.backups.before_update(self.values)
        self.values += 1

    def leave(self, worker: int) -> None:
        self.backups.forget(worker, self.lives[worker])
        self.replace(worker)

    def replace(self, worker: int) -> None:
        """Its next life begins, and nobody has said that the one before has ended."""
        self.lives[worker] += 1
        self.has.pop(worker, None)

    def check(self) -> None:
        for worker, life in self.lives.items():
            mine, has = self.backups.of(worker, life), self.has.get(worker)
            known = has is not None and not torch.equal(has, self.values)
            assert (mine is not None) == known
            if mine is not None and has is not None:
                assert torch.equal(mine, has)
            assert self.backups.of(worker, life + 1) is None


@given(steps=STEPS)
@settings(max_examples=cases(300), deadline=None)
def test_everyone_s_is_what_it_was_given_and_there_are_no_more_copies_than_workers(
    steps: list[tuple[str, int]],
) -> None:
    naive = Naive()
    everyone: set[int] = set()  # that has been given something and has not been heard to leave
    for kind, worker in steps:
        getattr(naive, kind)(worker)
        everyone = everyone | {worker} if kind == "give" else everyone - {worker} if kind == "leave" else everyone
        naive.check()
        assert naive.backups.nbytes <= len(everyone) * naive.values.nbytes
    for worker in range(WORKERS):
        naive.leave(worker)
    assert naive.backups.nbytes == 0


def test_those_that_were_given_the_same_share_a_copy_and_it_goes_with_the_last_of_them() -> None:
    backups, values = Backups(), torch.zeros(SIZE)
    for worker in range(3):
        backups.give(worker, 0)
    assert backups.nbytes == 0, "it is the shard's own as long as that has not changed"
    backups.before_update(values)
    assert backups.of(0, 0) is backups.of(1, 0) is backups.of(2, 0) is not None
    values += 1
    backups.give(0, 0)
    backups.give(1, 0)
    assert backups.of(0, 0) is None
    assert backups.nbytes == values.nbytes
    backups.before_update(values)
    assert torch.equal(backups.of(2, 0), torch.zeros(SIZE))  # type: ignore[arg-type]
    assert torch.equal(backups.of(1, 0), torch.ones(SIZE))  # type: ignore[arg-type]
    assert backups.nbytes == 2 * values.nbytes
    for worker in range(3):
        backups.forget(worker, 0)
    assert backups.nbytes == 0


def test_memory_that_is_free_is_used_again() -> None:
    backups, values, places = Backups(), torch.zeros(SIZE), set()
    for _ in range(20):
        backups.give(0, 0)
        backups.before_update(values)
        values += 1
        copy = backups.of(0, 0)
        assert copy is not None
        places.add(copy.data_ptr())
    assert len(places) == 1
