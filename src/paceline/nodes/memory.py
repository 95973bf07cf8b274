"""Tensors over memory that the wire has, without a copy."""

from __future__ import annotations

from ctypes import c_char

import numpy as np
import torch
from torch import Tensor


def tensor_over(view: memoryview, dtype: torch.dtype) -> Tensor:
    """A flat tensor over these bytes. Where they are read-only, whoever writes to it ends the process.

    torch has no read-only tensors and warns of read-only memory each time, which is what a peer's segment is here. So
    it is shown the address alone, and the view is kept for as long as the tensor lives.
    """
    if not view.readonly:
        return torch.frombuffer(view, dtype=dtype)
    array = np.frombuffer(view, dtype=np.uint8)
    memory = (c_char * view.nbytes).from_address(array.__array_interface__["data"][0])
    memory._keep = array  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=dtype)
