"""The store against one process that does the same: it sums in order, divides, and steps with torch's own optimizer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Group, Optimizer, ParameterError, Space, rows, updater
from paceline.params.buffers import StoreError
from paceline.params.store import Closed, OrderError, Store
from tests.effort import cases

MAKE: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "momentum": lambda parameters, **kw: torch.optim.SGD(parameters, momentum=0.9, **kw),
    "adam": torch.optim.Adam,
}


def store(size: int, name: str = "sgd", *, deterministic: bool = False, **given: Any) -> Store:
    buffers = torch.zeros(size), torch.zeros(size)
    return Store(Optimizer(name, given), Space({"p": (size,)}), 0, size, buffers, deterministic=deterministic)


def numbers(seed: int, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator) * 10.0 ** torch.randint(-6, 4, (size,), generator=generator)


class Alone:
    """One process: the gradients of a round added in the given order, divided by their number, one step."""

    def __init__(self, name: str, values: torch.Tensor, **given: Any) -> None:
        self.parameter = torch.nn.Parameter(values.clone())
        self.optimizer = MAKE[name]([self.parameter], **given)

    def step(self, gradients: list[torch.Tensor], scale: float | None = None, rate: float | None = None) -> None:
        if rate is not None:
            self.optimizer.param_groups[0]["lr"] = rate
        if gradients:
            mean = gradients[0].clone()
            for gradient in gradients[1:]:
                mean += gradient
            if scale is None:
                mean /= len(gradients)
            else:
                mean *= scale
            self.parameter.grad = mean
            self.optimizer.step()

    @property
    def values(self) -> torch.Tensor:
        return self.parameter.detach()


@pytest.fixture(params=[16, 2**20], ids=["many pieces", "one piece"])
def piece(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE", request.param)
    monkeypatch.setattr(updater, "PIECE", request.param)
    monkeypatch.setattr(updater, "MANY_PASSES", request.param)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("name", list(MAKE))
@given(
    size=st.integers(1, 200),
    seed=st.integers(0, 2**32),
    orders=st.lists(st.permutations(range(4)), min_size=1, max_size=5),
    absorbing=st.lists(st.booleans(), min_size=20, max_size=20),
    lending=st.lists(st.booleans(), min_size=5, max_size=5),
)
@settings(max_examples=cases(40), deadline=None)
def test_a_deterministic_round_has_the_bits_of_one_process(
    name: str, size: int, seed: int, orders: list[list[int]], absorbing: list[bool], lending: list[bool]
) -> None:
    first = numbers(seed, size)
    mine, alone = store(size, name, deterministic=True, lr=0.1), Alone(name, first, lr=0.1)
    mine.set(first)
    ask = iter(absorbing)
    for number, order in enumerate(orders):
        gradients = {worker: numbers(seed + number * 10 + worker + 1, size) for worker in order[: 1 + seed % 4]}
        for worker, gradient in gradients.items():
            mine.gather(number, worker, gradient)
            if next(ask):
                mine.absorb()
        buffer = mine.buffers.lend() if lending[number] else None
        before = mine.values.clone()
        read = mine.values
        assert mine.close(number, progress=number) == Closed(len(gradients))
        if buffer is not None:
            assert torch.equal(read, before)
            mine.buffers.give_back(buffer)
        alone.step([gradients[worker] for worker in sorted(gradients)])
        assert torch.equal(mine.values, alone.values)


HUGE = 3e38  # two of them overflow
KINDS = st.sampled_from(["plain", "plain", "plain", "plain", "nan", "inf", "huge"])
WORKERS = 4
AGAIN = 100  # tells a worker's second gradient in a round from its first
ASIDE = st.one_of(  # what can happen beside the pushes
    st.none(),
    st.none(),
    st.tuples(st.just("absorb"), st.none() | st.integers(0, WORKERS - 1)),
    st.tuples(st.just("discard"), st.integers(0, WORKERS - 1)),
    st.tuples(st.just("apply"), KINDS),
    st.tuples(st.just("lend")),
    st.tuples(st.just("give_back"), st.integers(0, 9)),
    st.tuples(st.just("give_back"), st.integers(0, 9)),
)


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Workers push in some order, some of them a round ahead, and rounds close one after another."""
    program: list[tuple[Any, ...] | None] = []
    for number in range(draw(st.integers(1, 5))):
        for worker in draw(st.permutations(range(WORKERS)))[: draw(st.integers(0, WORKERS))]:
            program.append(("gather", number, worker, draw(KINDS)))
            program.append(draw(ASIDE))
            if draw(st.booleans()):
                program += [("gather", number + 1, worker, draw(KINDS)), draw(ASIDE)]
        program.append(("close", number, draw(st.sampled_from([None, WORKERS, WORKERS + 1]))))
    return [step for step in program if step]


class Both:
    """A store, and beside it one process that does the same. Memory is spoilt as soon as the store may not need it."""

    def __init__(self, name: str, deterministic: bool, size: int, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.size, self.deterministic = size, deterministic
        self.first = torch.randn(size, generator=self.generator)
        self.store, self.alone = store(size, name, deterministic=deterministic, lr=0.1), Alone(name, self.first, lr=0.1)
        self.store.set(self.first)
        self.rounds: dict[int, dict[int, torch.Tensor]] = {}
        self.memory: dict[tuple[int, int], torch.Tensor] = {}
        self.kept: set[tuple[int, int]] = set()
        self.lent: list[tuple[int, torch.Tensor, torch.Tensor]] = []

    def gradient(self, kind: str) -> torch.Tensor:
        gradient = torch.randn(self.size, generator=self.generator)
        at = int(torch.randint(0, self.size, (), generator=self.generator))
        if kind != "plain":
            gradient[at] = {"nan": math.nan, "inf": math.copysign(math.inf, gradient[at]), "huge": HUGE}[kind]
        return gradient if kind != "huge" else torch.full_like(gradient, HUGE)

    def spoil(self, *, number: int | None = None, worker: int | None = None) -> None:
        for key, row in self.memory.items():
            if number in (None, key[0]) and worker in (None, key[1] % AGAIN):
                row.fill_(math.nan)

    def gather(self, number: int, worker: int, kind: str) -> None:
        those = self.rounds.setdefault(number, {})
        if worker in those and (self.deterministic or self.store.holds(number, worker)):
            with pytest.raises(StoreError, match="already"):
                self.store.gather(number, worker, torch.zeros(self.size))
            return
        key = worker + AGAIN * sum(other % AGAIN == worker for other in those)
        those[key] = self.gradient(kind)
        self.memory[number, key] = those[key].clone()
        self.store.gather(number, worker, self.memory[number, key])

    def absorb(self, worker: int | None) -> None:
        out_of_order = worker is not None and any(
            worker in those and (number, worker) not in self.kept and not set(range(worker)) <= set(those)
            for number, those in self.rounds.items()
        )
        if self.deterministic and out_of_order:
            with pytest.raises(OrderError, match=f"worker {worker} in round"):
                self.store.absorb(worker)
            return
        self.store.absorb(worker)
        if worker is not None or not self.deterministic:
            self.spoil(worker=worker)

    def discard(self, worker: int) -> None:
        self.store.discard(worker)
        self.spoil(worker=worker)
        self.kept |= {(number, worker) for number, those in self.rounds.items() if worker in those}

    def close(self, number: int, of: int | None) -> None:
        if not self.store.buffers.can_update:
            if number in self.rounds:
                with pytest.raises(StoreError, match="both buffers are lent"):
                    self.store.close(number, progress=0)
            return
        those = self.rounds.pop(number, {})
        bad = [key for key in those if not those[key].isfinite().all()]
        refused = tuple(sorted(key % AGAIN for key in bad))
        finite = [those[key] for key in sorted(those) if key not in bad]
        overflowed = bool(finite) and not torch.stack(finite).sum(0).isfinite().all()
        used = [] if overflowed else finite
        closed = self.store.close(number, progress=number, of=of)
        assert closed == Closed(len(used), refused, overflowed)
        self.spoil(number=number)
        self.kept -= {(number, worker) for worker in those}
        self.alone.step(used, rate=0.1 if of is None else 0.1 * len(used) / of)

    def apply(self, kind: str) -> None:
        if not self.store.buffers.can_update:
            with pytest.raises(StoreError, match="both buffers are lent"):
                self.store.set(self.first)
            return
        gradient = self.gradient(kind)
        before = gradient.clone()
        finite = bool(gradient.isfinite().all())
        assert self.store.apply(gradient, share=0.25, progress=0) == finite
        assert torch.equal(gradient.nan_to_num(7.0), before.nan_to_num(7.0))
        if finite:
            self.alone.step([gradient], scale=0.25, rate=0.1)

    def lend(self) -> None:
        values = self.store.values
        self.lent.append((self.store.buffers.lend(), values, values.clone()))

    def give_back(self, which: int) -> None:
        if self.lent:
            self.store.buffers.give_back(self.lent.pop(which % len(self.lent))[0])

    def check(self) -> None:
        for _, values, seen in self.lent:
            assert torch.equal(values, seen)
        if self.deterministic:
            assert torch.equal(self.store.values, self.alone.values)
        else:
            assert torch.allclose(self.store.values, self.alone.values, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.usefixtures("piece")
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("name", ["sgd", "momentum"])
@given(size=st.integers(1, 60), seed=st.integers(0, 2**32), program=programs())
@settings(max_examples=cases(100), deadline=None)
def test_whatever_happens_it_is_what_one_process_would_have(
    name: str, deterministic: bool, size: int, seed: int, program: list[tuple[Any, ...]]
) -> None:
    """Rounds open at once, memory taken away, gradients that are not finite, readers: nothing is lost or mixed."""
    both = Both(name, deterministic, size, seed)
    for step, *arguments in program:
        getattr(both, step)(*arguments)
        both.check()


@pytest.mark.parametrize("lent", [False, True])
@pytest.mark.parametrize("values", [(math.nan,), (math.inf,), (-math.inf,), (math.inf, -math.inf)])
def test_a_gradient_that_is_not_finite_anywhere_is_found(values: tuple[float, ...], lent: bool) -> None:
    size = 3 * rows.PIECE // 4 + 5
    for at in (0, size // 2, size - len(values)):
        mine = store(size)
        if lent:
            mine.buffers.lend()
        bad = torch.ones(size)
        bad[at : at + len(values)] = torch.tensor(values)
        assert not mine.apply(bad, share=1.0, progress=0)
        mine.gather(0, 0, bad)
        assert mine.close(0, progress=0) == Closed(0, (0,))
        assert torch.equal(mine.values, torch.zeros(size))
        mine.gather(1, 0, torch.ones(size))
        mine.gather(1, 1, bad)
        assert mine.close(1, progress=1) == Closed(1, (1,))
        assert torch.allclose(mine.values, torch.full((size,), -1e-3))


def test_numbers_whose_sum_or_squares_overflow_are_finite_all_the_same() -> None:
    mine = store(100, lr=0.5)
    mine.gather(0, 0, torch.full((100,), 1e37))
    mine.gather(0, 1, torch.full((100,), 1e37))
    assert mine.close(0, progress=0) == Closed(2)
    assert torch.equal(mine.values, torch.full((100,), -5e36))
    assert mine.apply(torch.full((100,), 1e37), share=0.5, progress=0)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_rounds_closed_one_by_one_need_one_working_copy(name: str) -> None:
    size = 1000
    mine = store(size, name)
    for number in range(5):
        for worker in range(4):
            mine.gather(number, worker, torch.ones(size))
            mine.absorb()
        mine.close(number, progress=number)
    state = mine.updater.nbytes
    assert mine.nbytes == state + 4 * size
    for number in range(3):
        mine.gather(number, 0, torch.ones(size))
        mine.absorb()
    assert mine.nbytes == state + 3 * 4 * size
    for number in range(3):
        mine.close(number, progress=number)
        mine.gather(number + 3, 0, torch.ones(size))
        mine.absorb()
    assert mine.nbytes == state + 3 * 4 * size


def test_a_round_of_one_gradient_needs_no_working_copy() -> None:
    size = 3 * rows.PIECE // 4
    mine = store(size)
    mine.gather(0, 3, torch.ones(size))
    mine.close(0, progress=0)
    assert mine.nbytes <= mine.updater.nbytes + rows.PIECE


def test_in_order_a_dead_workers_gradient_is_kept_until_its_turn() -> None:
    size = 100
    mine, alone = store(size, deterministic=True, lr=0.1), Alone("sgd", torch.zeros(size), lr=0.1)
    gradients = [numbers(worker, size) for worker in range(3)]
    memory = gradients[2].clone()
    mine.gather(0, 2, memory)
    with pytest.raises(OrderError, match="worker 2 in round 0"):
        mine.absorb(2)
    mine.discard(2)
    memory.fill_(math.nan)
    mine.absorb(2)  # its next life needs its memory: nothing of it is held any more
    for worker in (1, 0):
        mine.gather(0, worker, gradients[worker])
    assert mine.close(0, progress=0) == Closed(3)
    alone.step(gradients)
    assert torch.equal(mine.values, alone.values)


def test_nothing_is_applied_for_a_round_that_nobody_took_part_in() -> None:
    mine = store(10, "momentum")
    mine.set(torch.ones(10))
    assert mine.close(7, progress=7) == Closed(0)
    mine.gather(8, 0, torch.full((10,), math.inf))
    assert mine.close(8, progress=8) == Closed(0, (0,))
    assert torch.equal(mine.values, torch.ones(10))
    assert mine.updater.steps == 0


def test_nobody_can_join_a_round_whose_norms_are_known() -> None:
    mine = store(10, "lars")
    mine.gather(0, 0, torch.ones(10))
    mine.partial_norms(0)
    with pytest.raises(StoreError, match="is closing"):
        mine.gather(0, 1, torch.ones(10))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_change_nothing(threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        size = 200_000
        mine, alone = store(size, "momentum", deterministic=True), Alone("momentum", torch.zeros(size))
        for number in range(3):
            gradients = [numbers(10 * number + worker, size) for worker in range(3)]
            for worker, gradient in enumerate(gradients):
                mine.gather(number, worker, gradient)
            mine.close(number, progress=number)
            alone.step(gradients)
        assert torch.equal(mine.values, alone.values)
    finally:
        torch.set_num_threads(before)


def test_what_does_not_fit_is_refused() -> None:
    mine = store(10)
    for row in (torch.zeros(9), torch.zeros(10, dtype=torch.float64), torch.zeros(2, 5)):
        with pytest.raises(ParameterError, match=r"does not fit: the shard has 10 torch.float32"):
            mine.gather(0, 0, row)
        with pytest.raises(ParameterError, match="does not fit"):
            mine.set(row)
    with pytest.raises(ParameterError, match="does not fit"):
        Store(Optimizer(), Space({"p": (10,)}), 0, 10, (torch.zeros(10), torch.zeros(9)))
    for share in (0.0, 1.5, math.nan):
        with pytest.raises(ParameterError, match="a share is above 0"):
            mine.apply(torch.zeros(10), share=share, progress=0)
    for buffer in (0, 1, 2, -1):
        with pytest.raises(StoreError, match="is not lent"):
            mine.buffers.give_back(buffer)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("bad", [None, 0, 2])
def test_summed_and_stepped_at_once_is_the_same_as_one_after_the_other(deterministic: bool, bad: int | None) -> None:
    """Also if one has NaN at its end."""
    size = 3 * rows.PIECE // 4 + 17
    gradients = [numbers(worker, size) for worker in range(3)]
    if bad is not None:
        gradients[bad][-1] = torch.nan
    results = []
    for at_once in (True, False):
        made = store(size, lr=0.5, deterministic=deterministic)
        for worker, gradient in enumerate(gradients):
            made.gather(0, worker, gradient)
        if not at_once:
            made.absorb()
        assert made.close(0, progress=0) == Closed(3 if bad is None else 2, () if bad is None else (bad,))
        assert made.updater.steps == 1
        assert made._rows.made == (0 if at_once and bad is None else 1)
        results.append(made.values)
    if deterministic:
        assert torch.equal(*results)
    torch.testing.assert_close(*results)


def test_learning_rates_of_groups_can_come_with_the_gradient() -> None:
    optimizer = Optimizer("sgd", {"lr": 1.0}, (Group(("a",)), Group(("b",), {"lr": 2.0})))
    made = Store(optimizer, Space({"a": (2,), "b": (2,)}), 0, 4, (torch.zeros(4), torch.zeros(4)))
    made.apply(torch.ones(4), share=1.0, progress=0)
    assert made.values.tolist() == [-1, -1, -2, -2]
    made.apply(torch.ones(4), share=1.0, progress=0, rates=(10.0, 0.0))
    assert made.values.tolist() == [-11, -11, -2, -2]
    made.gather(0, 0, torch.ones(4))
    made.close(0, progress=0, rates=(0.0, 1.0))
    assert made.values.tolist() == [-11, -11, -3, -3]
    for wrong in ((1.0,), (1.0, -1.0), (1.0, math.nan)):
        with pytest.raises(ParameterError, match="2 are needed"):
            made.apply(torch.ones(4), share=1.0, progress=0, rates=wrong)
