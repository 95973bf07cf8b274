"""Delay compensation in the store, against DC-ASGD written down as the paper has it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Optimizer, Space, rows, updater
from paceline.params.compensation import Compensator
from paceline.params.crew import Crew
from paceline.params.store import Store
from paceline.sync.compensation import Compensation
from tests.effort import cases
from tests.oracles.dc_asgd import ParameterServer

WORKERS = 3
KINDS = {"constant": Compensation(0.5), "adaptive": Compensation(2.0, 0.95), "no memory": Compensation(2.0, 0.0)}
BAD = [(kind, bad) for kind in KINDS for bad in ("nan", "inf", "the correction overflows")]
BAD += [(kind, "the square overflows") for kind in KINDS if kind != "constant"]  # which has none without a delay


@pytest.fixture(params=[16, 2**20], ids=["many pieces", "one piece"])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, updater):
        monkeypatch.setattr(module, "PIECE", request.param)
    monkeypatch.setattr(updater, "MANY_PASSES", request.param)


def store(size: int, momentum: float, *, deterministic: bool = True, threads: int = 1) -> Store:
    buffers = torch.zeros(size), torch.zeros(size)
    optimizer = Optimizer("sgd", {"lr": 0.1, "momentum": momentum})
    return Store(optimizer, Space({"p": (size,)}), 0, size, buffers, deterministic=deterministic, crew=Crew(threads))


def numbers(generator: torch.Generator, size: int) -> torch.Tensor:
    return torch.randn(size, generator=generator) * 10.0 ** torch.randint(-3, 2, (size,), generator=generator)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@given(
    seed=st.integers(0, 2**32),
    size=st.integers(1, 200),
    events=st.lists(st.tuples(st.integers(0, WORKERS - 1), st.booleans(), st.booleans()), max_size=15),
    deterministic=st.booleans(),
)
@settings(max_examples=cases(25), deadline=None)
def test_it_is_the_paper_s_algorithm(
    kind: str, momentum: float, seed: int, size: int, events: list[tuple[int, bool, bool]], deterministic: bool
) -> None:
    """Bit for bit where the store's steps are torch's, else nearly; whether readers have the live buffer or not."""
    how, generator = KINDS[kind], torch.Generator().manual_seed(seed)
    first = numbers(generator, size)
    mine = store(size, momentum, deterministic=deterministic, threads=2)
    mine.set(first)
    mine.compensate(how)
    paper = ParameterServer(first, WORKERS, 0.1, how.lam, how.memory, momentum)
    given_to = {worker: first.clone() for worker in range(WORKERS)}
    largest = first.abs()  # each number has been, which is what it is rounded by
    for worker, pulls, lent in events:
        if pulls:
            given_to[worker] = mine.values.clone()
            paper.receive_pull_request(worker)
            continue
        gradient = numbers(generator, size)
        buffer = mine.buffers.lend() if lent else None
        assert mine.apply(gradient, share=1 / WORKERS, progress=0, given=given_to[worker])
        paper.receive_gradient(worker, gradient)
        if buffer is not None:
            mine.buffers.give_back(buffer)
        expected = paper.w.detach()
        if deterministic:
            assert torch.equal(mine.values, expected)
        else:  # from the same values each time: the next correction would multiply what rounding has made different
            largest = largest.maximum(expected.abs())
            assert torch.all((mine.values - expected).abs() <= 1e-6 * (1 + largest))
            expected.copy_(mine.values)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize(("kind", "bad"), BAD)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("lent", ["lent", "not lent"])
def test_what_is_not_finite_changes_nothing(kind: str, momentum: float, bad: str, lent: str) -> None:
    """In the last piece only, so that those before it have been looked at."""
    how, size = KINDS[kind], 100
    mine, other = store(size, momentum), store(size, momentum)
    generator = torch.Generator().manual_seed(1)
    first, given_, gradient = (numbers(generator, size) for _ in range(3))
    for one in (mine, other):
        one.set(first)
        one.compensate(how)
        assert one.apply(gradient, share=0.5, progress=0, given=given_)
    broken = gradient.clone()
    far: torch.Tensor | None = first.clone()
    if bad in ("nan", "inf"):
        broken[-1] = float(bad)
    elif bad == "the correction overflows":
        broken[-1], far[-1] = 1e18, -1e38  # type: ignore[index]
    else:
        broken[-1], far = 1e20, None
    buffer = mine.buffers.lend() if lent == "lent" else None
    before = mine.values.clone()
    assert not mine.apply(broken, share=0.5, progress=0, given=far)
    assert torch.equal(mine.values, before)
    if buffer is not None:
        mine.buffers.give_back(buffer)
    for one in (mine, other):  # what is remembered has not changed either: they go on alike
        assert one.apply(gradient, share=0.5, progress=0, given=given_)
    assert torch.equal(mine.values, other.values)
    assert mine.updater.steps == other.updater.steps == 2


def test_no_strength_is_no_correction() -> None:
    generator = torch.Generator().manual_seed(2)
    first, given_, gradient = (numbers(generator, 1000) for _ in range(3))
    plain, compensated = store(1000, 0.9), store(1000, 0.9)
    compensated.compensate(Compensation(0.0))
    for one in (plain, compensated):
        one.set(first)
        assert one.apply(gradient, share=0.25, progress=0, given=given_)
    assert torch.equal(plain.values, compensated.values)


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_what_the_shard_has_now_is_not_corrected(kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    first, gradient = (numbers(generator, 1000) for _ in range(2))
    plain, compensated, same = store(1000, 0.0), store(1000, 0.0), store(1000, 0.0)
    for one in (compensated, same):
        one.compensate(KINDS[kind])
    for one, has in ((plain, None), (compensated, None), (same, first)):
        one.set(first)
        assert one.apply(gradient, share=0.25, progress=0, given=has)
    assert torch.equal(plain.values, compensated.values)
    assert torch.equal(plain.values, same.values)


def test_the_mean_square_counts_as_memory_and_stays_when_only_the_strength_is_changed() -> None:
    mine = store(100, 0.0)
    before = mine.nbytes
    mine.compensate(Compensation(0.04))
    assert mine.nbytes == before
    mine.compensate(Compensation(2.0, 0.95))
    assert mine.nbytes == before + 400
    assert mine.apply(torch.ones(100), share=1.0, progress=0)
    mine.compensate(Compensation(1.0, 0.5))
    assert mine.compensator is not None
    assert mine.compensator.squares is not None
    assert math.isclose(float(mine.compensator.squares[0]), 0.05, rel_tol=1e-6)
    mine.compensate(None)
    assert mine.compensator is None


def test_pieces_may_come_in_any_length() -> None:
    """The room that is kept for a short one is not too short for the next."""
    how = Compensator(Compensation(0.5), 10, torch.float32)
    gradient, now, seen = torch.ones(10), torch.full((10,), 3.0), torch.ones(10)
    for piece in (slice(8, 10), slice(0, 8), slice(8, 10)):
        out = torch.zeros(piece.stop - piece.start)
        how.correct(gradient[piece], now[piece], seen[piece], piece, out)
        assert out.tolist() == [2.0] * len(out)
