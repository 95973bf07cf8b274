"""What a worker says of its model: can it be served, and is it the same as another's?"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from paceline.nodes import messages as m
from paceline.params import ParameterError, Space

DTYPES = ("float32", "float64")


def space_of(description: m.Describe) -> Space:
    """Raises ParameterError if it cannot be served."""
    space = Space({tensor.name: tensor.shape for tensor in description.tensors})
    if description.dtype not in DTYPES:
        raise ParameterError(f"parameters of type {description.dtype} cannot be served; {', '.join(DTYPES)} can")
    return space


def difference(ours: m.Describe, theirs: m.Describe) -> str | None:
    """The first parameter in which two models differ, in words; None where they are the same."""
    if ours.dtype != theirs.dtype:
        return f"its parameters are {theirs.dtype}, the run's are {ours.dtype}"
    mine = {tensor.name: tensor.shape for tensor in ours.tensors}
    for tensor in theirs.tensors:
        if tensor.name not in mine:
            return f"parameter {tensor.name!r} is not in the run{_nearest(tensor.name, mine)}"
        if tensor.shape != mine[tensor.name]:
            return f"parameter {tensor.name!r} has the shape {tensor.shape}, in the run it is {mine[tensor.name]}"
    have = {tensor.name for tensor in theirs.tensors}
    for tensor in ours.tensors:
        if tensor.name not in have:
            return f"parameter {tensor.name!r} is missing"
    if ours.tensors != theirs.tensors:
        return "its parameters come in another order"
    if ours.optimizer != theirs.optimizer:
        return f"its optimizer is {theirs.optimizer}, the run's is {ours.optimizer}"
    return None


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; {close[0]!r} is" if close else ""
