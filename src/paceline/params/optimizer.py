"""Which optimizer the servers run: a name and numbers that travel, with torch's names and torch's defaults.

What is wrong with them is said here, before a server sees them, with the nearest right spelling. A user's own optimizer
has an import path for a name, `my_package.my_module:MyOptimizer`; the servers import it, code never travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from math import isfinite

from msgspec import Struct

from paceline.params.schedule import AnySchedule
from paceline.params.space import ParameterError

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


def nearest(name: str, names: Iterable[str]) -> str:
    """The known name that was probably meant, as the end of a sentence."""
    close = get_close_matches(name.lower(), list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


def number(settings: Mapping[str, Value], name: str) -> float:
    """A setting that is a number."""
    value = settings[name]
    assert isinstance(value, int | float)
    return value


def betas(settings: Mapping[str, Value]) -> tuple[float, float]:
    """The two betas of Adam."""
    value = settings["betas"]
    assert isinstance(value, tuple)
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
        good = isinstance(value, tuple) and len(value) == 2 and all(_is_number(v) and 0 <= v < 1 for v in value)
        return None if good else "two numbers from 0 up to 1, not included"
    if not _is_number(value):
        return "a number"
    assert isinstance(value, int | float)
    if name == "dampening" or value > 0 or (value == 0 and name != "trust"):
        return None
    return "above 0" if name == "trust" else "0 or more"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
