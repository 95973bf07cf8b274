"""Copies between a user's parameters and the memory of the wire.

On a GPU they go over a stream of their own, from and to memory that the driver has pinned: gradients to the very
segment that servers read from, and parameters from the own memory of the server, if it is on this host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

from paceline.params import OptimizerError

READ_ONLY = 8  # cudaHostRegisterReadOnly: the GPU only reads, which is all that a peer's memory allows


class Copies:
    """For parameters on the CPU."""

    def out(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        """Gradients to where they are sent from. They are there after `finish`."""
        if targets:
            torch._foreach_copy_(targets, sources)

    def back(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        """Parameters from where they came to. Whatever uses them next finds them there."""
        if targets:
            with torch.no_grad():
                torch._foreach_copy_(targets, sources)

    def finish(self) -> None:
        """All copies so far are done: what was copied from may change."""

    def pin(self, memory: Tensor, *, writable: bool) -> None:
        """There will be many copies from this memory, or to it."""


class CudaCopies(Copies):
    """For parameters on one GPU, or some of them. What cannot be pinned is copied all the same, but slower."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pinned: dict[int, Tensor] = {}  # by address; holding on to it keeps the address from being used again

    def out(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
                if source.is_cuda:
                    source.record_stream(self._stream)

    def back(self, targets: list[Tensor], sources: list[Tensor]) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.no_grad(), torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources, strict=True):
                target.copy_(source, non_blocking=True)
        torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def finish(self) -> None:
        self._stream.synchronize()

    def pin(self, memory: Tensor, *, writable: bool) -> None:
        address = memory.data_ptr()
        if address in self._pinned:
            return
        self._pinned[address] = memory
        flags = 0 if writable else READ_ONLY
        refused = torch.cuda.cudart().cudaHostRegister(address, memory.nbytes, flags)  # type: ignore[no-untyped-call]
        if int(refused):
            with suppress(RuntimeError):  # whoever launches the next kernel would be told
                torch.zeros(1, device=self._device)


def copies_for(parameters: Sequence[Tensor]) -> Copies:
    """What suits these parameters; they may be on the CPU and on one GPU."""
    gpus = {p.device for p in parameters if p.device.type == "cuda"}
    if len(gpus) > 1:
        names = ", ".join(sorted(map(str, gpus)))
        raise OptimizerError(f"a worker's parameters are on {names}; they may be on the CPU and on one GPU")
    return CudaCopies(gpus.pop()) if gpus else Copies()
