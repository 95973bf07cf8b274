"""Tensors over memory that the wire has, without a copy."""

from __future__ import annotations

from ctypes import c_char

import numpy as np
import torch
from torch import Tensor

MOST = 64  # tensors that are remembered


class Tensors:
    """Tensors over views that come again and again: to make one costs more than to find it."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._made: dict[int, tuple[memoryview, Tensor]] = {}  # by the identity of the view, which must live as long

    def over(self, view: memoryview) -> Tensor:
        made = self._made.get(id(view))
        if made is None:
            if len(self._made) == MOST:
                self._made.clear()
            made = self._made[id(view)] = view, tensor_over(view, self._dtype)
        return made[1]


def tensor_over(view: memoryview, dtype: torch.dtype) -> Tensor:
    """A flat tensor over these bytes. Where they are read-only, whoever writes to it ends the process.

    The memory stays for as long as the tensor does, also when the segment is closed: numpy holds on to it, which
    `torch.frombuffer` does not. torch has no read-only tensors and warns of read-only memory, which is what a peer's
    segment is here; so it is shown the address alone.
    """
    array = np.frombuffer(view, dtype=np.uint8)
    if not view.readonly:
        return torch.from_numpy(array).view(dtype)
    memory = (c_char * view.nbytes).from_address(array.__array_interface__["data"][0])
    memory._keep = array  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=dtype)
