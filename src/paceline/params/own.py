"""A user's own optimizer on the servers: a `torch.optim.Optimizer`, imported by its path.

A server holds a part of some tensor, as a row. So the optimizer must treat every element on its own: it is tried out
on a small tensor, once whole and once cut in two rows, and must give the same.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from paceline.params.optimizer import OptimizerError, Settings, Value, nearest, number
from paceline.params.rules import Rule

WHAT_TO_DO = "take one of the built-in optimizers, or one that treats every element on its own"
SCALES = (1.0, 1e-3, 30.0, 1e3, 1.0)  # of the gradients that an optimizer is tried out with: one that clips shows it


class Own(Rule):
    """A user's optimizer for one row of elements."""

    def __init__(self, path: str, settings: Settings) -> None:
        self._path = path
        kind = load(path)
        self._row = torch.nn.Parameter(torch.zeros(0))
        self._optimizer = make(path, kind, self._row, settings)
        self.settings: Settings = {**settings, "lr": number(self._optimizer.param_groups[0], "lr")}

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        self._row.data, self._row.grad = values, gradient
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()

    def save(self, state: dict[str, Tensor], start: int, size: int) -> None:
        """Put what it remembers into the state of the slice, where this row starts at `start`."""
        for name, value in self._optimizer.state[self._row].items():
            if isinstance(value, Tensor) and value.dim():
                row = state.setdefault(name, torch.zeros(size, dtype=value.dtype))
                row[start : start + value.numel()] = value
            elif isinstance(value, Tensor | int | float):
                state[name] = torch.as_tensor(value)

    def load(self, state: Mapping[str, Tensor], start: int, stop: int, dtype: torch.dtype) -> None:
        self._row.data = torch.zeros(stop - start, dtype=dtype)
        mine = self._optimizer.state[self._row]
        for name, value in state.items():
            if name != "steps":
                mine[name] = value[start:stop].clone() if value.dim() else value.clone()


def load(path: str) -> type[torch.optim.Optimizer]:
    """The class that an import path names."""
    module_name, _, class_name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise OptimizerError(
            f"cannot import {module_name!r} for the optimizer {path!r}: {error}; "
            "it must be installed, or lie on the Python path, on every server"
        ) from error
    kind = getattr(module, class_name, None)
    if kind is None:
        raise OptimizerError(f"the module {module_name!r} has no {class_name!r}{nearest(class_name, vars(module))}")
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
        raise OptimizerError(f"{path!r} is not an optimizer; derive it from torch.optim.Optimizer")
    return kind


def make(
    path: str, kind: Callable[..., torch.optim.Optimizer], row: torch.nn.Parameter, settings: Mapping[str, Value]
) -> torch.optim.Optimizer:
    """An instance for one parameter."""
    known = inspect.signature(kind).parameters
    open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in known.values())
    for name in settings:
        if name not in known and not open_ended:
            names = list(known)[1:]
            raise OptimizerError(f"{path} has no setting {name!r}{nearest(name, names)}; it has {', '.join(names)}")
    try:
        return kind([row], **settings)
    except Exception as error:
        raise OptimizerError(f"{path} cannot be made with {dict(settings)}: {error}") from error
