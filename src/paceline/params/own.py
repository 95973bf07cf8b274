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

from paceline.params.optimizer import OptimizerError, Settings, Value, nearest
from paceline.params.rules import Rule

WHAT_TO_DO = "take a built-in optimizer (sgd, adam, lars, …) or one that treats every element on its own"
SCALES = (1.0, 1e-3, 30.0, 1e3, 1.0)  # of the gradients that an optimizer is tried out with: one that clips shows it
SHAPE, CUT = (5, 8), 13
NUMBER = "number:"  # marks what is remembered as a plain number, so that it comes back as one

Kind = Callable[..., torch.optim.Optimizer]


class Own(Rule):
    """A user's optimizer for one row of elements."""

    def __init__(self, path: str, settings: Settings, size: int, dtype: torch.dtype) -> None:
        self._path = path
        self._row = torch.nn.Parameter(torch.zeros(size, dtype=dtype))
        self._optimizer = make(path, load(path), self._row, settings)
        group = self._optimizer.param_groups[0]
        if not isinstance(group.get("lr"), int | float):
            raise OptimizerError(f"{path} has no learning rate; its parameter groups must have a number `lr`")
        self.lr = float(group["lr"])

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        self._row.data, self._row.grad = values, gradient.clone()  # a copy, for many optimizers write to it
        self._optimizer.param_groups[0]["lr"] = lr
        self._optimizer.step()
        self._row.grad = None

    def save(self, state: dict[str, Tensor], start: int, size: int) -> None:
        """Put what it remembers into the state of the slice, where this row starts at `start`."""
        for name, value in self._optimizer.state[self._row].items():
            if isinstance(value, int | float):
                state[NUMBER + name] = torch.tensor(
                    value, dtype=torch.int64 if isinstance(value, int) else torch.float64
                )
            elif isinstance(value, Tensor) and not value.dim():
                state[name] = value
            elif isinstance(value, Tensor) and value.shape == self._row.shape:
                row = state.setdefault(name, torch.zeros(size, dtype=value.dtype))
                row[start : start + value.numel()] = value
            else:
                raise OptimizerError(
                    f"{self._path} remembers {name}, which is neither a number nor one for each element"
                )

    def load(self, state: Mapping[str, Tensor], start: int, stop: int) -> None:
        """Take over what `save` gave."""
        mine = self._optimizer.state[self._row]
        for name, value in state.items():
            if name.startswith(NUMBER):
                mine[name.removeprefix(NUMBER)] = value.item()
            elif name != "steps":
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


def check_elementwise(path: str, settings: Settings) -> None:
    """Try an optimizer out: a small tensor must take the same steps whole and as two rows."""
    kind = load(path)
    generator = torch.Generator().manual_seed(0)
    values, *gradients = torch.randn((1 + len(SCALES), *SHAPE), generator=generator, dtype=torch.float64)
    make(path, kind, torch.nn.Parameter(values), settings)
    gradients = [gradient * scale for gradient, scale in zip(gradients, SCALES, strict=True)]
    try:
        whole = _tried(path, kind, settings, values, gradients)
        rows = [
            _tried(path, kind, settings, values.flatten()[part], [gradient.flatten()[part] for gradient in gradients])
            for part in (slice(CUT), slice(CUT, None))
        ]
    except Exception as error:
        raise OptimizerError(f"{path} cannot step rows, parts of tensors ({error}); {WHAT_TO_DO}") from error
    if not torch.allclose(whole.flatten(), torch.cat(rows), rtol=1e-9, atol=1e-12):
        raise OptimizerError(
            f"{path} cannot run on servers that hold parts of tensors: a tensor that is cut takes other steps than a "
            f"whole one; {WHAT_TO_DO}"
        )


def _tried(path: str, kind: Kind, settings: Settings, values: Tensor, gradients: Sequence[Tensor]) -> Tensor:
    parameter = torch.nn.Parameter(values.clone())
    optimizer = make(path, kind, parameter, settings)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach()


def make(path: str, kind: Kind, row: torch.nn.Parameter, settings: Mapping[str, Value]) -> torch.optim.Optimizer:
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
