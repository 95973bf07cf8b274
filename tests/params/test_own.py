"""A user's own optimizer on servers: cut anywhere it steps as it does whole, and one that cannot be cut is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params import Group, Optimizer, OptimizerError, Space
from paceline.params.updater import Updater
from tests.effort import cases
from tests.oracles.optimizers import Lion

HERE = "tests.oracles.optimizers"


@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=4),
    cut=st.floats(0, 1),
    piece=st.integers(1, 50),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=cases(25), deadline=None)
def test_it_steps_as_it_does_whole(sizes: list[int], cut: float, piece: int, seed: int) -> None:
    torch.manual_seed(seed)
    space = Space({f"p{key}": (size,) for key, size in enumerate(sizes)})
    at = min(space.size - 1, max(1, round(cut * space.size)))
    whole = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    theirs = Lion([{"params": whole[:1], "decay": 0.5}, {"params": whole[1:]}], lr=0.1)
    mine = Optimizer(f"{HERE}:Lion", {"lr": 0.1}, (Group(("p0",), {"decay": 0.5}),))
    row = torch.cat([parameter.detach() for parameter in whole])
    slices = {edges: row[slice(*edges)].clone() for edges in ((0, at), (at, space.size))}
    updaters = {edges: Updater(mine, space, *edges) for edges in slices}
    for progress in range(4):
        gradient = torch.randn(space.size)
        before = gradient.clone()
        for edges, updater in updaters.items():
            part = gradient[slice(*edges)]
            updater.step(
                slices[edges], [(i, part[i : i + piece]) for i in range(0, len(part), piece)], progress=progress
            )
        assert torch.equal(gradient, before)
        for tensor, parameter in zip(space.tensors, whole, strict=True):
            parameter.grad = gradient[tensor.start : tensor.stop].clone()
        theirs.step()
        if progress == 1:  # another server takes over
            for edges in updaters:
                state = {name: value.clone() for name, value in updaters[edges].state_dict().items()}
                assert updaters[edges].nbytes == sum(value.nbytes for value in state.values())
                updaters[edges] = Updater(mine, space, *edges)
                updaters[edges].load_state_dict(state)
    assert torch.equal(torch.cat(list(slices.values())), torch.cat([parameter.detach() for parameter in whole]))


@pytest.mark.parametrize(
    ("path", "given_settings", "said"),
    [
        (f"{HERE}:Normalized", {}, "Normalized cannot run on servers that hold parts of tensors.*take a built-in"),
        (f"{HERE}:Clipped", {}, "Clipped cannot run on servers"),
        (f"{HERE}:ByShape", {}, "ByShape cannot run on servers"),
        ("torch.optim:LBFGS", {}, "LBFGS cannot step rows.*closure.*take a built-in"),
        ("torch.optim:Muon", {}, "Muon cannot step rows.*2D.*take a built-in"),
        ("torch.optim:Adafactor", {}, "Adafactor cannot run on servers.*take a built-in"),
        (f"{HERE}:Rateless", {}, "Rateless has no learning rate"),
        (f"{HERE}:Lion", {"beta": 1.0}, "no setting 'beta', did you mean 'betas'.*it has lr, betas, decay"),
        (f"{HERE}:Lyon", {}, "has no 'Lyon', did you mean 'Lion'"),
        (f"{HERE}:NOT_AN_OPTIMIZER", {}, "is not an optimizer; derive it from torch.optim.Optimizer"),
        ("no_such_package.module:Thing", {}, "cannot import 'no_such_package.module'.*on every server"),
        ("torch.optim:Adam", {"lr": -1.0}, "cannot be made with .*Invalid learning rate"),
    ],
)
def test_one_that_cannot_run_there_is_refused(path: str, given_settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptimizerError, match=said):
        Updater(Optimizer(path, given_settings), Space({"a": (10,)}), 0, 10)
