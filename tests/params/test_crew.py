"""Work shared out among threads is the same work."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Event, get_ident

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.params import Optimizer, Space
from paceline.params.crew import ENOUGH, TOGETHER, Crew, cut
from paceline.params.optimizer import Settings
from paceline.params.rows import PIECE
from paceline.params.store import Closed, Store

SIZE = 3 * ENOUGH * TOGETHER * PIECE // 4 + 5  # enough for three threads, and an odd end
WORKERS = 3


@given(st.integers(0, 1000), st.integers(1, 100), st.integers(1, 6), st.integers(1, 6))
def test_every_piece_is_worked_on_once(size: int, piece: int, threads: int, rows: int) -> None:
    crew = Crew(threads)
    pieces = crew.cut(size, piece)
    assert pieces == cut(size, piece if threads == 1 else TOGETHER * piece)
    assert [n for one in pieces for n in range(one.start, one.stop)] == list(range(size))
    shares = crew.share(pieces, lambda share, mine: (share, list(mine)), rows)
    assert sorted((one for _, mine in shares for one in mine), key=lambda one: one.start) == pieces
    assert [share for share, _ in shares] == list(range(len(shares)))
    assert len(shares) == max(1, min(threads, len(pieces), rows * len(pieces) // ENOUGH))


def test_who_is_held_up_has_fewer_pieces() -> None:
    over = Event()

    def work(share: int, pieces: Iterable[slice]) -> int:
        if share == 1:
            assert over.wait(30)
            return len(list(pieces))
        done = len(list(pieces))
        over.set()
        return done

    assert Crew(2).share(cut(10 * ENOUGH, 1), work) == [10 * ENOUGH, 0]


def test_shares_run_at_the_same_time() -> None:
    here = [Event(), Event()]

    def meet(share: int, _: object) -> int:
        here[share].set()
        assert here[1 - share].wait(30)
        return get_ident()

    first, second = Crew(2).share(cut(2 * ENOUGH, 1), meet)
    assert first == get_ident() != second


@pytest.mark.parametrize("wrong", [0, 1])
def test_an_error_is_raised_when_nobody_is_at_it_any_more(wrong: int) -> None:
    failing, done = Event(), Event()

    def work(share: int, _: object) -> None:
        if share == wrong:
            failing.set()
            raise RuntimeError(f"share {share}")
        assert failing.wait(30)
        done.set()

    with pytest.raises(RuntimeError, match=f"share {wrong}"):
        Crew(2).share(cut(2 * ENOUGH, 1), work)
    assert done.is_set()


def test_a_crew_of_nobody() -> None:
    with pytest.raises(ValueError, match="crew of 0"):
        Crew(0)


def make(name: str, threads: int, deterministic: bool) -> Store:
    settings: dict[str, Settings] = {
        "sgd": {"lr": 0.1},
        "momentum": {"lr": 0.1, "momentum": 0.9},
        "adam": {"lr": 0.1},
    }
    optimizer = Optimizer("sgd" if name == "momentum" else name, settings[name])
    torch.manual_seed(1)
    buffers = torch.randn(SIZE), torch.zeros(SIZE)
    return Store(optimizer, Space({"w": (SIZE,)}), 0, SIZE, buffers, deterministic=deterministic, crew=Crew(threads))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_three_threads_give_the_bits_of_one(name: str, deterministic: bool) -> None:
    alone, shared = make(name, 1, deterministic), make(name, 3, deterministic)
    generator = torch.Generator().manual_seed(2)
    for step in range(4):
        gradients = [torch.randn(SIZE, generator=generator) for _ in range(WORKERS)]
        if step == 2:
            gradients[1][-1] = float("nan")
        for store in (alone, shared):
            lent = store.buffers.lend() if step % 2 else None  # into the other buffer, or in place
            for worker, gradient in enumerate(gradients):
                store.gather(step, worker, gradient)
            refused = (1,) if step == 2 else ()
            assert store.close(step, progress=step) == Closed(WORKERS - len(refused), refused)
            assert store.apply(gradients[0], share=0.5, progress=step)
            assert not store.apply(torch.full((SIZE,), float("inf")), share=0.5, progress=step)
            if lent is not None:
                store.buffers.give_back(lent)
        assert torch.equal(alone.values, shared.values)
        assert alone.updater.steps == shared.updater.steps == 2 * step + 2
