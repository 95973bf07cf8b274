"""The updater against torch's own optimizers: the same bits, wherever tensors and pieces are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Group, Optimizer, OptimizerError, ParameterError, Space
from paceline.params.schedule import Cosine, Step
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
    updaters = [Updater(mine, space, *edges, dtype, deterministic=True) for edges in pairwise(cuts)]
    slices = [row[a:b].clone() for a, b in pairwise(cuts)]
    for progress in range(STEPS):
        gradient = numbers(generator, space.size, dtype)
        for tensor, parameter in zip(space.tensors, whole, strict=True):
            parameter.grad = gradient[tensor.start : tensor.stop].clone()
        theirs.step()
        for updater, values, start, stop in zip(updaters, slices, cuts, cuts[1:], strict=False):
            updater.step(values, cut(gradient, start, stop, piece), progress=progress)
    assert torch.equal(torch.cat(slices), torch.cat([parameter.detach() for parameter in whole]))


@pytest.mark.parametrize(("name", "given_settings"), ALL)
@given(world=worlds())
@settings(max_examples=cases(5), deadline=None)
def test_the_fast_kernels_differ_in_rounding_only(
    name: str, given_settings: dict[str, Any], world: tuple[list[int], list[int], int, int, torch.dtype]
) -> None:
    sizes, _, piece, seed, dtype = world
    space, optimizer = space_of(sizes), Optimizer(name, given_settings)
    generator = torch.Generator().manual_seed(seed)
    fast, exact = (Updater(optimizer, space, 0, space.size, dtype, deterministic=one) for one in (False, True))
    first = torch.randn(space.size, generator=generator, dtype=dtype)
    values = {fast: first.clone(), exact: first.clone()}
    for progress in range(STEPS):
        gradient = torch.randn(space.size, generator=generator, dtype=dtype)
        for updater, row in values.items():
            updater.step(row, cut(gradient, 0, space.size, piece), progress=progress)
    near = 1e-4 if dtype is torch.float32 else 1e-12
    assert torch.allclose(values[fast], values[exact], rtol=near, atol=near)


@given(world=worlds(), base=st.sampled_from([0.1, 0.5]), rate=st.sampled_from([1.0, 3.0]))
@settings(max_examples=cases(20), deadline=None)
def test_the_rate_follows_progress_whatever_the_number_of_steps(
    world: tuple[list[int], list[int], int, int, torch.dtype], base: float, rate: float
) -> None:
    sizes, _, piece, _, dtype = world
    space = space_of(sizes)
    groups = (Group(("p0",), {"lr": 2.0}),)
    updater = Updater(Optimizer("sgd", {"lr": base}, groups, Step(3, 0.5)), space, 0, space.size, dtype)
    values = torch.zeros(space.size, dtype=dtype)
    gradient = torch.ones(space.size, dtype=dtype)
    expected = torch.zeros(space.size, dtype=torch.float64)
    for progress in (0, 1, 1, 7, 4, 12):
        updater.step(values, cut(gradient, 0, space.size, piece), progress=progress, rate=rate)
        expected -= base * 0.5 ** (progress // 3) * rate
    first = space.tensors[0].stop
    expected[:first] *= 2.0 / base
    assert torch.allclose(values.double(), expected, rtol=1e-5)


@pytest.mark.parametrize(("name", "given_settings"), ALL)
@given(world=worlds(), again=st.sets(st.integers(0, 1500), max_size=3))
@settings(max_examples=cases(5), deadline=None)
def test_the_state_can_be_cut_and_joined_as_servers_come_and_go(
    name: str,
    given_settings: dict[str, Any],
    world: tuple[list[int], list[int], int, int, torch.dtype],
    again: set[int],
) -> None:
    sizes, cuts, piece, seed, dtype = world
    space, optimizer = space_of(sizes), Optimizer(name, given_settings, schedule=Cosine(10))
    generator = torch.Generator().manual_seed(seed)
    row = numbers(generator, space.size, dtype)
    moved = row.clone()
    stays = Updater(optimizer, space, 0, space.size, dtype, deterministic=True)
    movers = {edges: Updater(optimizer, space, *edges, dtype, deterministic=True) for edges in pairwise(cuts)}
    for progress in range(2 * STEPS):
        if progress == STEPS:
            states = [updater.state_dict() for updater in movers.values()]
            assert sum(updater.nbytes for updater in movers.values()) >= stays.nbytes
            joined = {key: torch.cat([state[key] for state in states]) for key in states[0] if key != "steps"}
            others = sorted({min(mark, space.size) for mark in again} | {0, space.size})
            movers = {edges: Updater(optimizer, space, *edges, dtype, deterministic=True) for edges in pairwise(others)}
            for (start, stop), updater in movers.items():
                mine = {key: state[start:stop] for key, state in joined.items()}
                updater.load_state_dict({"steps": states[0]["steps"], **mine})
        gradient = numbers(generator, space.size, dtype)
        stays.step(row, cut(gradient, 0, space.size, piece), progress=progress)
        for (start, stop), updater in movers.items():
            updater.step(moved[start:stop], cut(gradient, start, stop, piece), progress=progress)
    assert torch.equal(moved, row)


def test_a_state_that_does_not_fit_is_refused() -> None:
    space = space_of([10])
    updater = Updater(Optimizer("adam"), space, 0, 10)
    with pytest.raises(OptimizerError, match=r"adam needs exp_avg of 10 elements; there is no one"):
        updater.load_state_dict({"steps": torch.tensor(3)})
    with pytest.raises(OptimizerError, match=r"there is a \(5,\) one"):
        updater.load_state_dict(Updater(Optimizer("adam"), space, 5, 10).state_dict())
    assert updater.steps == 0


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([(0, 3), (4, 6)], "starts at 4; the next is due at 3"),
        ([(0, 3), (3, 3)], "have 6 elements; the slice has 10"),
        ([], "have 0 elements"),
    ],
)
def test_pieces_that_leave_gaps_are_refused(pieces: list[tuple[int, int]], said: str) -> None:
    updater = Updater(Optimizer("sgd"), space_of([10]), 0, 10)
    with pytest.raises(ParameterError, match=said):
        updater.step(torch.zeros(10), [(offset, torch.zeros(size)) for offset, size in pieces], progress=0)


def test_elements_and_types_that_are_not_there_are_refused() -> None:
    for edges in ((0, 11), (-1, 5), (5, 5)):
        with pytest.raises(ParameterError, match="there are 0 to 10"):
            Updater(Optimizer("sgd"), space_of([10]), *edges)
    with pytest.raises(ParameterError, match="must be float32 or float64"):
        Updater(Optimizer("sgd"), space_of([10]), 0, 10, torch.float16)
