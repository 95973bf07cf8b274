"""What an optimizer remembers: by parameter, as torch has it, and in rows of all of them, as the servers have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paceline.nodes import Snapshot
from paceline.nodes.snapshot import number_of, tensor_of
from paceline.params import OptimizerError, Space
from paceline.params.own import NUMBER

COUNTED = ("Adam", "AdamW", "Adagrad", "RMSprop")  # torch's own that keep a count of steps for each parameter


class State(NamedTuple):
    """How many iterations there were, and by parameter: its values if they are not the model's own, and what the
    optimizer remembers of it."""

    iteration: int
    values: dict[str, Tensor]
    remembered: dict[str, dict[str, Any]]


def to_snapshot(
    optimizer: torch.optim.Optimizer, named: Mapping[str, Tensor], space: Space, dtype: torch.dtype, iteration: int
) -> Snapshot:
    """What a run begins with: the parameters as they are, and what the optimizer remembers of them.

    The servers count steps for all parameters together; where torch's counts differ, the least one is taken.
    """
    first = Snapshot({name: parameter.detach().to("cpu", dtype) for name, parameter in named.items()}, clock=iteration)
    steps: list[int] = []
    shared = _shared(optimizer, named)
    for tensor in space.tensors:
        state = optimizer.state.get(named[tensor.name]) or {}
        for name, value in state.items():
            if isinstance(value, int | float):
                first.numbers[NUMBER + name] = number_of(_plain(value))
            elif isinstance(value, Tensor) and not value.dim() and name in shared:
                first.numbers[name] = number_of(value.detach().cpu())
            elif isinstance(value, Tensor) and value.shape == tensor.shape:
                row = first.rows.setdefault(name, torch.zeros(space.size, dtype=dtype))
                row[tensor.start : tensor.stop] = value.detach().reshape(-1).to("cpu", dtype)
            elif value is not None:
                raise OptimizerError(
                    f"the optimizer remembers {name!r} of parameter {tensor.name!r}, which is neither a number nor one "
                    "for each element; a run cannot go on from it"
                )
        if state:
            steps.append(int(state.get("step", 1)))
    first.steps = min(steps, default=0)
    if not first.steps:
        first.rows.clear()
    return first


def from_snapshot(snapshot: Snapshot, kind: str, space: Space, frozen: dict[str, dict[str, Any]]) -> State:
    """By parameter, as an optimizer of torch of this kind would have it, beside what it remembers of frozen ones."""
    shared: dict[str, Any] = {}
    for name, number in snapshot.numbers.items():
        if name.startswith(NUMBER):
            shared[name.removeprefix(NUMBER)] = number.value
        else:
            shared[name] = tensor_of(number)
    if kind in COUNTED:
        shared["step"] = torch.tensor(float(snapshot.steps))
    assert isinstance(snapshot.values, Tensor)
    values, remembered = {}, frozen
    for tensor in space.tensors:
        place = slice(tensor.start, tensor.stop)
        values[tensor.name] = snapshot.values[place].view(tensor.shape)
        if not snapshot.steps:
            continue
        remembered[tensor.name] = {
            **{name: value.clone() if isinstance(value, Tensor) else value for name, value in shared.items()},
            **{name: row[place].view(tensor.shape) for name, row in snapshot.rows.items()},
        }
    return State(snapshot.clock, values, remembered)


def _shared(optimizer: torch.optim.Optimizer, named: Mapping[str, Tensor]) -> set[str]:
    """What is one number for a whole parameter. Of a parameter that is a number itself one could not tell."""
    states = [(parameter, optimizer.state.get(parameter) or {}) for parameter in named.values()]
    return {"step"} | {
        name
        for parameter, state in states
        if parameter.dim()
        for name, value in state.items()
        if isinstance(value, Tensor) and not value.dim()
    }


def _plain(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)
