"""The updater against torch's own optimizers: the same bits, wherever tensors and pieces are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Group, Optimizer, OptimizerError, ParameterError, Space
from paceline.params.schedule import AnySchedule, Cosine, Step
from paceline.params.updater import Updater
from tests.effort import cases

Make = Callable[..., torch.optim.Optimizer]
KNOWN: dict[str, tuple[Make, list[dict[str, Any]]]] = {
    "sgd": (
        torch.optim.SGD,
        [{}, {"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.01}, {"momentum": 0.8, "dampening": 0.3}, {"maximize": True}],
    ),
    "momentum": (
        lambda parameters, **kw: torch.optim.SGD(parameters, **{"momentum": 0.9, **kw}),
        [{}, {"lr": 0.1, "weight_decay": 0.01}, {"momentum": 0.5, "maximize": True}],
    ),
    "nesterov": (
        lambda parameters, **kw: torch.optim.SGD(parameters, **{"momentum": 0.9, "nesterov": True, **kw}),
        [{}, {"lr": 0.1, "weight_decay": 0.01}],
    ),
    "adam": (
        torch.optim.Adam,
        [{}, {"lr": 0.1, "weight_decay": 0.01}, {"betas": (0.8, 0.99), "amsgrad": True}, {"maximize": True}],
    ),
    "adamw": (torch.optim.AdamW, [{}, {"lr": 0.1, "eps": 1e-6, "weight_decay": 0.1}, {"amsgrad": True}]),
    "adagrad": (
        torch.optim.Adagrad,
        [{}, {"lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1}, {"maximize": True}],
    ),
    "rmsprop": (
        torch.optim.RMSprop,
        [{}, {"momentum": 0.9, "centered": True, "weight_decay": 0.01}, {"centered": True}, {"maximize": True}],
    ),
}
ALL = [(name, given) for name, (_, settings_) in KNOWN.items() for given in settings_]
STEPS = 4


def numbers(generator: torch.Generator, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Of very different sizes, with zeros among them."""
    row = torch.randn(size, generator=generator, dtype=dtype)
    row *= 10.0 ** torch.randint(-6, 4, (size,), generator=generator).to(dtype)
    row[torch.rand(size, generator=generator) < 0.05] = 0
    return row


def cut(row: torch.Tensor, start: int, stop: int, piece: int) -> Iterator[tuple[int, torch.Tensor]]:
    for offset in range(start, stop, piece):
        yield offset - start, row[offset : min(offset + piece, stop)]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[int], list[int], int, int, torch.dtype]:
    """Sizes of tensors, cuts of the row, the length of pieces, a seed, a dtype."""
    sizes = draw(st.lists(st.integers(1, 300), min_size=1, max_size=5))
    cuts = draw(st.sets(st.integers(0, sum(sizes)), max_size=3)) | {0, sum(sizes)}
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    return sizes, sorted(cuts), draw(st.integers(1, 150)), draw(st.integers(0, 2**32)), dtype


def space_of(sizes: list[int]) -> Space:
    return Space({f"p{key}": (size,) for key, size in enumerate(sizes)})


@pytest.mark.parametrize(("name", "given_settings"), ALL)
@given(world=worlds(), groups=st.lists(st.integers(0, 2), min_size=5, max_size=5))
@settings(max_examples=cases(20), deadline=None)
def test_the_same_bits_as_torch_wherever_it_is_cut(
    name: str,
    given_settings: dict[str, Any],
    world: tuple[list[int], list[int], int, int, torch.dtype],
    groups: list[int],
) -> None:
    sizes, cuts, piece, seed, dtype = world
    generator = torch.Generator().manual_seed(seed)
    space = space_of(sizes)
    overrides: list[dict[str, Any]] = [{}, {"lr": 0.5, "weight_decay": 0.0}, {"weight_decay": 0.3}]
    whole = [torch.nn.Parameter(numbers(generator, size, dtype)) for size in sizes]
    members = [[key for key in range(len(sizes)) if groups[key] == group] for group in range(3)]
    torch_groups = [
        {"params": [whole[key] for key in keys], **overrides[group]} for group, keys in enumerate(members) if keys
    ]
    theirs = KNOWN[name][0](torch_groups, **given_settings)
    mine = Optimizer(
        name,
        given_settings,
        tuple(Group(tuple(f"p{key}" for key in members[group]), overrides[group]) for group in (1, 2)),
    )
    row = torch.cat([parameter.detach() for parameter in whole])
    updaters = [Updater(mine, space, *edges, dtype, deterministic=True) for edges in zip(cuts, cuts[1:], strict=False)]
    slices = [row[a:b].clone() for a, b in zip(cuts, cuts[1:], strict=False)]
    for progress in range(STEPS):
        gradient = numbers(generator, space.size, dtype)
        for tensor, parameter in zip(space.tensors, whole, strict=True):
            parameter.grad = gradient[tensor.start : tensor.stop].clone()
        theirs.step()
        for updater, values, start, stop in zip(updaters, slices, cuts, cuts[1:], strict=False):
            updater.step(values, cut(gradient, start, stop, piece), progress=progress)
    assert torch.equal(torch.cat(slices), torch.cat([parameter.detach() for parameter in whole]))
