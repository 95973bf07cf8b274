"""The store against one process that does the same: it sums in order, divides, and steps with torch's own optimizer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Optimizer, Space
from paceline.params import rows as rows_module
from paceline.params.store import Closed, Store
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

    def step(self, gradients: list[torch.Tensor], scale: float | None = None) -> None:
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
    monkeypatch.setattr(rows_module, "PIECE", request.param)


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
        buffer = mine.lend() if lending[number] else None
        before = mine.values.clone()
        read = mine.values
        assert mine.close(number, progress=number) == Closed(len(gradients))
        if buffer is not None:
            assert torch.equal(read, before)
            mine.give_back(buffer)
        alone.step([gradients[worker] for worker in sorted(gradients)])
        assert torch.equal(mine.values, alone.values)
