"""Copies between a user's parameters and the memory of the wire.

On a GPU they go over a stream of their own, from and to memory that the driver has pinned: the very segment that
servers read from, registered with it, takes them at full speed and asynchronously.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.params import OptimizerError


class Copies:
    """For parameters on the CPU."""

    def out(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        """Gradients to where they are sent from. They are there when this returns."""
        if targets:
            torch._foreach_copy_(targets, sources)

    def back(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        """Parameters from where they came to. Whatever uses them next finds them there."""
        if targets:
            with torch.no_grad():
                torch._foreach_copy_(targets, sources)


class CudaCopies(Copies):
    """For parameters on one GPU, or some of them. `memory` is pinned, as far as the driver agrees to that.

    What `back` has read may be written to again after the next `out`.
    """

    def __init__(self, device: torch.device, memory: Sequence[Tensor]) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        for row in memory:
            torch.cuda.cudart().cudaHostRegister(row.data_ptr(), row.nbytes, 0)  # type: ignore[no-untyped-call]

    def out(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
        self._stream.synchronize()

    def back(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.no_grad(), torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)


def copies_for(parameters: Sequence[Tensor], memory: Sequence[Tensor]) -> Copies:
    """What suits these parameters; they may be on the CPU and on one GPU."""
    gpus = {p.device for p in parameters if p.device.type == "cuda"}
    if len(gpus) > 1:
        names = ", ".join(sorted(map(str, gpus)))
        raise OptimizerError(f"a worker's parameters are on {names}; they may be on the CPU and on one GPU")
    return CudaCopies(gpus.pop(), memory) if gpus else Copies()
