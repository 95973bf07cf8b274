"""The gradients of virtual workers: real ones, of a real network on real samples.

Every worker has parameters of its own, a flat row of them, so a gradient is a function of a row and a batch and nothing
else. `OneByOne` computes them in turn. `Together` has one pass for all workers of the same batch size: on a GPU many
small passes cost more to start than to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from paceline.params.space import Space

Batch = tuple[Tensor, Tensor]  # samples and their classes
Loss = Callable[[Tensor, Tensor], Tensor]

AT_ONCE = 64  # how many workers' gradients one pass computes at most


class Gradients(Protocol):
    def __call__(self, rows: Sequence[Tensor], batches: Sequence[Batch]) -> list[Tensor]:
        """The gradient of each row of parameters on its batch, as a row again."""
        ...


class Row:
    """A network whose parameters lie in one row, in the order of its own names."""

    def __init__(self, net: nn.Module, device: torch.device | str = "cpu") -> None:
        buffers = [name for name, _ in net.named_buffers()]
        if buffers:
            raise ValueError(
                f"{type(net).__name__} has buffers ({buffers[0]}, ...), which stay with each worker; virtual workers "
                "have parameters only: take a network without batch normalization"
            )
        self.net = net.to(device)
        self.space = Space({name: tuple(parameter.shape) for name, parameter in self.net.named_parameters()})
        self.start = torch.cat([parameter.detach().reshape(-1) for parameter in self.net.parameters()])
        self.values = self.start.clone()
        self.gradient = torch.zeros_like(self.values)
        with torch.no_grad():
            for parameter, tensor in zip(self.net.parameters(), self.space.tensors, strict=True):
                place = slice(tensor.start, tensor.stop)
                parameter.data = self.values[place].view(tensor.shape)
                parameter.grad = self.gradient[place].view(tensor.shape)

    def named(self, row: Tensor) -> dict[str, Tensor]:
        """A row, or rows, as the network's own tensors."""
        front = row.shape[:-1]
        return {
            tensor.name: row[..., tensor.start : tensor.stop].reshape(*front, *tensor.shape)
            for tensor in self.space.tensors
        }

    @torch.no_grad()
    def scores(self, row: Tensor, x: Tensor) -> Tensor:
        """What the network says of samples, with these parameters."""
        self.values.copy_(row)
        scores: Tensor = self.net(x)
        return scores


class OneByOne:
    """A pass forward and back for each worker."""

    def __init__(self, row: Row, loss: Loss = cross_entropy) -> None:
        self._row, self._loss = row, loss

    def __call__(self, rows: Sequence[Tensor], batches: Sequence[Batch]) -> list[Tensor]:
        return [self._one(row, batch) for row, batch in zip(rows, batches, strict=True)]

    def _one(self, row: Tensor, batch: Batch) -> Tensor:
        self._row.values.copy_(row)
        self._row.gradient.zero_()
        self._loss(self._row.net(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
        return self._row.gradient.clone()


class Together:
    """One pass for many workers, each with its own parameters."""

    def __init__(self, row: Row, loss: Loss = cross_entropy) -> None:
        def lossy(row_: Tensor, x: Tensor, y: Tensor) -> Tensor:
            return loss(functional_call(row.net, row.named(row_), (x,)), y)

        self._gradients = vmap(grad(lossy))

    def __call__(self, rows: Sequence[Tensor], batches: Sequence[Batch]) -> list[Tensor]:
        alike: dict[int, list[int]] = {}
        for place, (x, _) in enumerate(batches):
            alike.setdefault(len(x), []).append(place)
        found: dict[int, Tensor] = {}
        for places in alike.values():
            for first in range(0, len(places), AT_ONCE):
                some = places[first : first + AT_ONCE]
                x, y = (torch.stack([batches[place][part] for place in some]) for part in (0, 1))
                gradients = self._gradients(torch.stack([rows[place] for place in some]), x, y)
                found.update(zip(some, gradients.unbind(), strict=True))
        return [found[place] for place in range(len(rows))]
