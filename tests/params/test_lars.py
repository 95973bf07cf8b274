"""LARS against its pseudo-code on whole tensors in one process, with the tensors cut across servers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Group, Optimizer, OptimizerError, Space
from paceline.params.norms import Norms, square
from paceline.params.store import Closed, Store
from paceline.params.updater import Updater
from tests.effort import cases
from tests.oracles.optimizers import LARS

SETTINGS: dict[str, Any] = {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.01, "trust": 0.02, "eps": 1e-8}
WORKERS = 3


def servers(space: Space, cuts: list[int], optimizer: Optimizer, dtype: torch.dtype) -> list[Store]:
    made = []
    for start, stop in pairwise(cuts):
        buffers = torch.zeros(stop - start, dtype=dtype), torch.zeros(stop - start, dtype=dtype)
        made.append(Store(optimizer, space, start, stop, buffers, deterministic=True))
    return made


@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=4).filter(sum),
    marks=st.sets(st.floats(0, 1), max_size=4),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(max_examples=cases(60), deadline=None)
def test_norms_are_of_whole_tensors_wherever_they_are_cut(
    sizes: list[int], marks: set[float], seed: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    space = Space({f"p{key}": (size,) for key, size in enumerate(sizes)})
    cuts = sorted({round(mark * space.size) for mark in marks} | {0, space.size})
    plain: dict[str, Any] = {"adapt": False, "weight_decay": 0.0}
    stores = servers(
        space, cuts, Optimizer("lars", SETTINGS, (Group(("p1",) if len(sizes) > 1 else (), plain),)), dtype
    )
    oracles = [LARS(**{**SETTINGS, **(plain if key == 1 else {})}) for key in range(len(sizes))]
    whole = torch.randn(space.size, generator=generator, dtype=dtype)
    whole[: space.tensors[0].stop] = 0  # a tensor of zeros must be able to learn
    for store, start, stop in zip(stores, cuts, cuts[1:], strict=False):
        store.set(whole[start:stop])
    for number in range(4):
        gradients = [torch.randn(space.size, generator=generator, dtype=dtype) for _ in range(WORKERS)]
        for store, start, stop in zip(stores, cuts, cuts[1:], strict=False):
            for worker, gradient in enumerate(gradients):
                store.gather(number, worker, gradient[start:stop])
        total = Norms.total(store.partial_norms(number) for store in stores)
        for store in stores:
            assert store.close(number, progress=number, norms=total) == Closed(WORKERS)
        mean = (gradients[0] + gradients[1] + gradients[2]) / WORKERS
        for tensor, oracle in zip(space.tensors, oracles, strict=True):
            oracle.step(whole[tensor.start : tensor.stop], mean[tensor.start : tensor.stop])
    near = 1e-5 if dtype is torch.float32 else 1e-12
    assert torch.allclose(torch.cat([store.values for store in stores]), whole, rtol=near, atol=near)


@given(size=st.integers(2, 400), mark=st.floats(0, 1), seed=st.integers(0, 2**32))
@settings(max_examples=cases(60), deadline=None)
def test_cut_or_whole_the_values_have_the_same_bits(size: int, mark: float, seed: int) -> None:
    """In float64 parts of a norm are rounded, but that is lost when the rate is made float32."""
    generator = torch.Generator().manual_seed(seed)
    space = Space({"p": (size,)})
    at = min(size - 1, max(1, round(mark * size)))
    optimizer = Optimizer("lars", SETTINGS)
    (whole,), parts = (
        servers(space, [0, size], optimizer, torch.float32),
        servers(space, [0, at, size], optimizer, torch.float32),
    )
    first = torch.randn(size, generator=generator)
    for store, row in ((whole, first), (parts[0], first[:at]), (parts[1], first[at:])):
        store.set(row)
    for number in range(4):
        gradient = torch.randn(size, generator=generator)
        for store, row in ((whole, gradient), (parts[0], gradient[:at]), (parts[1], gradient[at:])):
            store.gather(number, 0, row)
        total = Norms.total(store.partial_norms(number) for store in parts)
        whole.close(number, progress=number)
        for store in parts:
            store.close(number, progress=number, norms=total)
    assert torch.equal(torch.cat([store.values for store in parts]), whole.values)


def test_a_cut_tensor_without_norms_is_an_error_that_changes_nothing() -> None:
    space = Space({"a": (10,), "b": (10,)})
    (store,) = servers(space, [0, 15], Optimizer("lars", SETTINGS), torch.float32)
    first, gradient = torch.randn(15), torch.randn(15)
    store.set(first)
    store.gather(0, 0, gradient)
    store.gather(0, 1, gradient)
    with pytest.raises(OptimizerError, match="the norm of 'b', which is cut"):
        store.close(0, progress=0)
    with pytest.raises(OptimizerError, match="slice so that no tensor is cut"):
        store.apply(gradient, share=0.5, progress=0)
    assert torch.equal(store.values, first)
    norms = store.partial_norms(0)
    assert norms.squares == {"b": (square(first[10:]), square(gradient[10:]))}
    assert store.close(0, progress=0, norms=norms) == Closed(2)


def test_only_lars_has_norms_to_exchange() -> None:
    space = Space({"a": (10,)})
    updater = Updater(Optimizer("sgd"), space, 0, 5)
    assert updater.partial_norms(torch.ones(5), torch.ones(5)) == Norms()


def test_a_norm_is_summed_in_float64() -> None:
    row = torch.full((1_000_003,), 1e-3)
    assert square(row) == pytest.approx(1_000_003 * float(torch.tensor(1e-3)) ** 2, rel=1e-13)
