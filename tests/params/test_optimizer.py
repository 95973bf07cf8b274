"""Optimizers as values: what is allowed, how they travel, and how they come from a user's own torch optimizer."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from paceline.params import Group, Optimizer, OptimizerError, Space, optimizer_from
from paceline.params.optimizer import DEFAULTS
from paceline.params.schedule import Cosine, Sequence, Warmup
from paceline.params.updater import Updater
from tests.oracles.optimizers import Lion

TORCH = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def parameters(*shapes: tuple[int, ...]) -> tuple[list[torch.nn.Parameter], dict[Any, str]]:
    made = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    return made, {parameter: f"p{key}" for key, parameter in enumerate(made)}


def test_it_travels_as_json() -> None:
    schedule = Sequence((Warmup(5), Cosine(100, 0.1)), (5,))
    groups = (Group(("a.bias", "b.bias"), {"weight_decay": 0.0}),)
    optimizer = Optimizer("adamw", {"lr": 0.1, "betas": (0.8, 0.9), "amsgrad": True}, groups, schedule)
    assert msgspec.json.decode(msgspec.json.encode(optimizer), type=Optimizer) == optimizer
    own = Optimizer("some.module:Class", {"lr": 1, "mode": "fast", "limit": None})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(own), type=Optimizer) == own


@pytest.mark.parametrize("name", list(TORCH))
def test_names_and_defaults_are_those_of_torch(name: str) -> None:
    made, _ = parameters((2,))
    theirs = TORCH[name](made).defaults
    for key, value in DEFAULTS[name].items():
        assert theirs[key] == value


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("smgd", {}, "no optimizer 'smgd', did you mean 'sgd'"),
        ("Adam", {}, "did you mean 'adam'"),
        ("sgd", {"learning_rate": 0.1}, "no setting 'learning_rate'.*it has lr, momentum"),
        ("sgd", {"momentun": 0.1}, "did you mean 'momentum'"),
        ("sgd", {"lr": -0.1}, "lr is -0.1; it must be 0 or more"),
        ("sgd", {"lr": float("nan")}, "lr is nan; it must be a number"),
        ("sgd", {"lr": float("inf")}, "lr is inf"),
        ("sgd", {"lr": True}, "lr is True"),
        ("sgd", {"lr": "0.1"}, "lr is '0.1'"),
        ("sgd", {"nesterov": 1}, "nesterov is 1; it must be true or false"),
        ("sgd", {"nesterov": True}, "needs a momentum"),
        ("nesterov", {"dampening": 0.1}, "needs a momentum above 0 and a dampening of 0"),
        ("adam", {"betas": (0.9, 1.0)}, "betas is"),
        ("adam", {"betas": 0.9}, "two numbers from 0 up to 1"),
        ("adam", {"betas": (0.9,)}, "two numbers"),
        ("lars", {"trust": 0.0}, "trust is 0.0; it must be above 0"),
    ],
)
def test_what_cannot_be_is_said_with_what_can(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptimizerError, match=said):
        Optimizer(name, given)
    if name in DEFAULTS:
        with pytest.raises(OptimizerError, match=said):
            Optimizer(name, {}, (Group(("a",), given),))


def test_betas_may_be_a_list() -> None:
    updater = Updater(Optimizer("adam", {"betas": [0.8, 0.9]}), Space({"a": (3,)}), 0, 3)  # type: ignore[dict-item]
    updater.step(torch.zeros(3), [(0, torch.ones(3))], progress=0)


def test_groups_name_each_tensor_once_and_only_those_there_are() -> None:
    with pytest.raises(OptimizerError, match="'a' is named twice"):
        Optimizer("sgd", {}, (Group(("a",)), Group(("b", "a"))))
    with pytest.raises(OptimizerError, match=r"names 'layer.wight', .*did you mean 'layer.weight'"):
        Updater(Optimizer("sgd", {}, (Group(("layer.wight",)),)), Space({"layer.weight": (3,)}), 0, 3)


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("name", list(TORCH))
def test_from_a_torch_optimizer(name: str, by_id: bool) -> None:
    made, names = parameters((2, 3), (4,), (5,))
    if by_id:
        names = {id(parameter): name for parameter, name in names.items()}
    decay = {"params": [made[0]], "weight_decay": 0.25}
    theirs = TORCH[name]([decay, {"params": [made[1]]}, {"params": [made[2]], "lr": 0.5}], lr=0.125, foreach=True)
    mine = optimizer_from(theirs, names)
    assert mine.name == name
    assert mine.groups == (Group(("p0",), {"weight_decay": 0.25}), Group(("p1",)), Group(("p2",), {"lr": 0.5}))
    assert mine.resolved()["lr"] == 0.125
    assert optimizer_from(TORCH[name](made, lr=0.5), names).resolved() == {**DEFAULTS[name], "lr": 0.5}


@pytest.mark.parametrize("rate", [torch.tensor(0.5), np.float64(0.5), np.float32(0.5)])
def test_rates_of_torch_and_numpy_become_numbers(rate: Any) -> None:
    made, names = parameters((2,))
    lr = optimizer_from(torch.optim.Adam(made, lr=rate), names).resolved()["lr"]
    assert (type(lr), lr) == (float, 0.5)


@pytest.mark.parametrize(
    "kind",
    [
        torch.optim.Adadelta,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.ASGD,
        torch.optim.Rprop,
    ],
)
def test_torchs_other_elementwise_optimizers_go_by_import_path(kind: Any) -> None:
    made, names = parameters((7,))
    theirs = kind(made, lr=0.05)
    mine = optimizer_from(theirs, names)
    assert mine.name == f"torch.optim:{kind.__name__}"
    assert not mine.settings.keys() & {"params", "foreach", "fused", "capturable", "differentiable"}
    updater = Updater(mine, Space({"p0": (7,)}), 0, 7)
    values = made[0].detach().clone()
    for progress in range(5):
        gradient = torch.randn(7)
        made[0].grad = gradient.clone()
        theirs.step()
        updater.step(values, [(0, gradient)], progress=progress)
    assert torch.equal(values, made[0].detach())


def test_a_users_own_goes_by_import_path() -> None:
    made, names = parameters((7,), (3,))
    theirs = Lion([{"params": made[:1]}, {"params": made[1:], "decay": 0.5}], lr=0.01)
    assert optimizer_from(theirs, names) == Optimizer(
        "tests.oracles.optimizers:Lion",
        {"lr": 0.01, "betas": (0.9, 0.99), "decay": 0.0},
        (Group(("p0",)), Group(("p1",), {"decay": 0.5})),
    )


@pytest.mark.parametrize("kind", ["LBFGS", "SparseAdam", "Muon", "Adafactor"])
def test_torch_optimizers_that_cannot_be_cut_are_refused_with_what_to_do(kind: str) -> None:
    made, names = parameters((2, 3))
    with pytest.raises(OptimizerError, match=f"{kind} .*take one of SGD, Adam"):
        optimizer_from(getattr(torch.optim, kind)(made), names)


def test_what_the_servers_could_not_import_is_refused() -> None:
    class Local(torch.optim.SGD):
        pass

    made, names = parameters((2,))
    with pytest.raises(OptimizerError, match=r"Local is defined inside a function.*top level of a module"):
        optimizer_from(Local(made), names)
    script = type("Script", (torch.optim.SGD,), {"__module__": "__main__"})
    with pytest.raises(OptimizerError, match="Script is defined in the script itself"):
        optimizer_from(script(made), names)


def test_what_cannot_travel_is_refused() -> None:
    made, names = parameters((2,), (3,))
    with pytest.raises(OptimizerError, match=r"a parameter of shape \(3,\) that the model has not"):
        optimizer_from(torch.optim.SGD(made), {made[0]: "p0"})
    with pytest.raises(OptimizerError, match=r"decay is .*cannot travel"):
        optimizer_from(Lion(made, decay=object()), names)  # type: ignore[arg-type]


def test_values_that_travel_need_no_torch() -> None:
    code = "import sys, paceline.params.schedule; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
