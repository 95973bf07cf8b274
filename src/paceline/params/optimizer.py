"""Which optimizer the servers run: a name and numbers that travel, with torch's names and torch's defaults.

What is wrong with them is said here, before a server sees them, with the nearest right spelling. A user's own optimizer
has an import path for a name, `my_package.my_module:MyOptimizer`; the servers import it, code never travels.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from paceline.params.schedule import AnySchedule
from paceline.params.space import ParameterError

if TYPE_CHECKING:
    from torch.optim import Optimizer as TorchOptimizer

Value = bool | int | float | str | tuple[float, ...] | None
Settings = dict[str, Value]


class OptimizerError(ParameterError):
    """An optimizer that does not exist, cannot be as it was asked for, or cannot run on a server."""


_SGD: Settings = {
    "lr": 1e-3,
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "nesterov": False,
    "maximize": False,
}
_ADAM: Settings = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "maximize": False,
}
DEFAULTS: dict[str, Settings] = {
    "sgd": _SGD,
    "momentum": {**_SGD, "momentum": 0.9},
    "nesterov": {**_SGD, "momentum": 0.9, "nesterov": True},
    "adam": {**_ADAM, "decoupled_weight_decay": False},
    "adamw": {**_ADAM, "weight_decay": 1e-2},
    "adagrad": {
        "lr": 1e-2,
        "lr_decay": 0.0,
        "weight_decay": 0.0,
        "initial_accumulator_value": 0.0,
        "eps": 1e-10,
        "maximize": False,
    },
    "rmsprop": {
        "lr": 1e-2,
        "alpha": 0.99,
        "eps": 1e-8,
        "weight_decay": 0.0,
        "momentum": 0.0,
        "centered": False,
        "maximize": False,
    },
    "lars": {
        "lr": 1e-3,
        "momentum": 0.9,
        "weight_decay": 0.0,
        "trust": 1e-3,
        "eps": 1e-8,
        "adapt": True,
        "maximize": False,
    },
}


TORCH = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "Adagrad": "adagrad", "RMSprop": "rmsprop"}
NOT_ELEMENTWISE = {
    "LBFGS": "looks at the whole model and needs a closure",
    "SparseAdam": "needs sparse gradients",
    "Muon": "orthogonalizes whole matrices",
    "Adafactor": "looks at rows and columns of whole matrices",
}
LOCAL = ("params", "foreach", "fused", "capturable", "differentiable")  # not what is computed, but on what and how


class Group(Struct, frozen=True):
    """Tensors, by name, that have settings of their own; what a group does not set it has from the optimizer."""

    tensors: tuple[str, ...]
    settings: Settings = {}


class Optimizer(Struct, frozen=True):
    """An optimizer as it travels. Tensors that no group names have the optimizer's settings."""

    name: str = "sgd"
    settings: Settings = {}
    groups: tuple[Group, ...] = ()
    schedule: AnySchedule | None = None

    def __post_init__(self) -> None:
        if not self.own and self.name not in DEFAULTS:
            raise OptimizerError(
                f"there is no optimizer {self.name!r}{nearest(self.name, DEFAULTS)}; there are "
                f"{', '.join(DEFAULTS)}, and your own by its import path, 'package.module:Class'"
            )
        named: set[str] = set()
        for group in self.groups:
            for tensor in group.tensors:
                if tensor in named:
                    raise OptimizerError(f"{self.name}: the parameter {tensor!r} is named twice in the groups")
                named.add(tensor)
        if not self.own:
            _check(self.name, self.resolved())
            for group in self.groups:
                _check(self.name, self.resolved(group))

    @property
    def own(self) -> bool:
        """Whether this is a user's own optimizer, named by its import path."""
        return ":" in self.name

    def resolved(self, group: Group | None = None) -> Settings:
        """All settings of a group, or of the tensors in none."""
        return {**DEFAULTS.get(self.name, {}), **self.settings, **(group.settings if group else {})}


def optimizer_from(optimizer: TorchOptimizer, names: Mapping[Any, str]) -> Optimizer:
    """What travels of a user's own `torch.optim` optimizer: its class, its settings and its parameter groups.

    `names` says what its parameters are called, by parameter or by `id`. Its state, if it has any, stays behind.
    """
    name = _name_of(type(optimizer))
    named = {key if isinstance(key, int) else id(key): tensor for key, tensor in names.items()}
    known = DEFAULTS.get(name) or inspect.signature(type(optimizer)).parameters
    common = _settings_of(name, optimizer.defaults, known)
    groups = []
    for group in optimizer.param_groups:
        tensors = tuple(_tensor_name(parameter, named) for parameter in group["params"])
        groups.append(Group(tensors, _settings_of(name, group, known)))
    if len(groups) == 1:
        return Optimizer(name, groups[0].settings)
    differing = (
        Group(group.tensors, {key: value for key, value in group.settings.items() if common.get(key) != value})
        for group in groups
    )
    return Optimizer(name, common, tuple(differing))


def _name_of(kind: type) -> str:
    if kind.__module__.split(".")[:2] == ["torch", "optim"]:
        if kind.__name__ in NOT_ELEMENTWISE:
            raise OptimizerError(
                f"{kind.__name__} {NOT_ELEMENTWISE[kind.__name__]}, but a server may hold a part of a tensor only; "
                f"take one of {', '.join(TORCH)}, or paceline's lars"
            )
        return TORCH.get(kind.__name__, f"torch.optim:{kind.__name__}")
    if kind.__module__ == "__main__" or "." in kind.__qualname__:
        where = "in the script itself" if kind.__module__ == "__main__" else "inside a function or a class"
        raise OptimizerError(
            f"{kind.__name__} is defined {where}, where the servers cannot import it; "
            "move it to the top level of a module"
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def _settings_of(name: str, given: Mapping[str, Any], known: Container[str]) -> Settings:
    travels = [key for key in given if key in known and key not in LOCAL]
    return {key: _plain(name, key, given[key]) for key in travels}


def _plain(name: str, key: str, value: Any) -> Value:
    if isinstance(value, tuple | list):
        return tuple(float(_plain(name, key, number)) for number in value)  # type: ignore[arg-type]
    if hasattr(value, "item"):  # a number of torch or numpy
        with suppress(RuntimeError, ValueError):
            value = value.item()
    if isinstance(value, bool | int | float | str | None):
        return value
    raise OptimizerError(f"{name}: {key} is {value!r}, which cannot travel; it must be a number, true, false or a text")


def _tensor_name(parameter: Any, named: Mapping[int, str]) -> str:
    name = named.get(id(parameter))
    if name is None:
        raise OptimizerError(
            f"the optimizer has a parameter of shape {tuple(parameter.shape)} that the model has not; "
            "give it model.parameters()"
        )
    return name


def nearest(name: str, names: Iterable[str]) -> str:
    """The known name that was probably meant, as the end of a sentence."""
    lowered = {known.lower(): known for known in names}
    close = get_close_matches(name.lower(), lowered, n=1)
    return f", did you mean {lowered[close[0]]!r}?" if close else ""


def number(settings: Mapping[str, Value], name: str) -> float:
    """A setting that is a number."""
    value = settings[name]
    assert isinstance(value, int | float)
    return value


def betas(settings: Mapping[str, Value]) -> tuple[float, float]:
    """The two betas of Adam."""
    value = settings["betas"]
    assert isinstance(value, tuple | list)
    return value[0], value[1]


def _check(optimizer: str, settings: Settings) -> None:
    known = DEFAULTS[optimizer]
    for name, value in settings.items():
        if name not in known:
            raise OptimizerError(
                f"{optimizer} has no setting {name!r}{nearest(name, known)}; it has {', '.join(known)}"
            )
        wanted = _wanted(name, value, known[name])
        if wanted:
            raise OptimizerError(f"{optimizer}: {name} is {value!r}; it must be {wanted}")
    if settings.get("nesterov") and (not settings["momentum"] or settings["dampening"]):
        raise OptimizerError(f"{optimizer}: nesterov needs a momentum above 0 and a dampening of 0")


def _wanted(name: str, value: Value, default: Value) -> str | None:
    """What this setting's value should have been, or None if it is right."""
    if isinstance(default, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, tuple):
        good = isinstance(value, tuple | list) and len(value) == 2 and all(_is_number(v) and 0 <= v < 1 for v in value)
        return None if good else "two numbers from 0 up to 1, not included"
    if not _is_number(value):
        return "a number"
    assert isinstance(value, int | float)
    if name == "dampening" or value > 0 or (value == 0 and name != "trust"):
        return None
    return "above 0" if name == "trust" else "0 or more"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
