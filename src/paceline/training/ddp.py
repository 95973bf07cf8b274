"""Torch's own `DistributedDataParallel` under a script that knows nothing of it.

DDP wraps a module, and hangs its hooks on the module's parameters: whoever computes with them, their gradients are
gathered in buckets during backward and all-reduced while backward goes on. So the module can be one that only holds the
parameters of the script's optimizer. What is left to do by hand is what a forward pass of DDP does, to tell its reducer
that a backward pass comes. That is done when the first gradient of a backward pass is there.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from paceline.nodes import WrongModel
from paceline.params import OptimizerError
from paceline.training.group import Group
from paceline.training.link import Closure, named
from paceline.training.session import Session
from paceline.training.state import State


class Holder(nn.Module):
    """Parameters, and nothing to compute with them."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__()
        self.held = nn.ParameterList(parameters)

    def forward(self) -> None:
        pass


class Reduced:
    """What `Link` is under the other models: the parameters that are trained, with DDP between them and the others.

    A step's time is computing until the last bucket is ready, with slowness that was asked for, and waiting until all
    buckets are the mean of all workers'. Every worker then does its own optimizer's step.
    """

    synchronized = True
    steps_alone = True

    def __init__(self, session: Session, optimizer: torch.optim.Optimizer, iteration: int = 0) -> None:
        self._session = session
        self._optimizer = optimizer
        self._names, parameters = _trained(optimizer)
        self.worker: Group = session.gather()
        self.worker.iteration = iteration
        try:
            self._ddp = DistributedDataParallel(Holder(parameters))
        except RuntimeError as error:
            raise WrongModel(f"the workers' parameters are not the same: {error}") from None
        self._ddp.register_comm_hook(None, lambda _, bucket: self._bucket(bucket))
        self._parameters = parameters
        self._wanted: Callable[[], bool] = lambda: True
        self._expected = self._reduced = False  # a backward pass of DDP is under way; one has ended
        self._computed = self._waited = 0.0
        for p in parameters:
            p.register_hook(self._first)  # type: ignore[no-untyped-call]
        session.begin()
        self._since = self._ready = self._arrived = monotonic()

    def watch(self, wanted: Callable[[], bool]) -> None:
        """From now on only those backward passes are all-reduced that are wanted."""
        self._wanted = wanted

    def step(self, closure: Closure | None = None) -> Any:
        """Do what the optimizer does, with gradients that are everyone's."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.worker.check()
        if not self._reduced:
            missing = [name for name, p in zip(self._names, self._parameters, strict=True) if p.grad is None]
            raise OptimizerError(
                f"no backward pass has given all parameters a gradient since the last step; DDP needs one for each of "
                f"them (without: {', '.join(missing) or 'some of them'})"
            )
        self._count()
        self._optimizer.step()
        self.worker.iteration += 1
        self._session.went_on(self._computed, self._waited, self._waited)
        self._computed = self._waited = 0.0
        return loss

    def take(self, frozen: dict[str, dict[str, Any]]) -> Callable[[], State]:
        """A copy of what the optimizer remembers; the parameters are the model's own."""
        taken = State(self.worker.iteration, {}, frozen)
        return lambda: taken

    def _first(self, _: Tensor) -> None:
        """A gradient is there, and about to be accumulated: the first one makes DDP ready for all."""
        if not self._expected and self._wanted():
            self._expected = True
            self._count()
            with torch.enable_grad(), self.worker.noticing():
                self._ddp()

    def _bucket(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        if bucket.is_last():
            self._expected, self._reduced = False, True
            self._session.slow_down(monotonic() - self._since)
            self._ready = monotonic()
        return self.worker.mean(bucket.buffer()).then(self._there)

    def _there(self, done: torch.futures.Future[Tensor]) -> Tensor:
        self._arrived = monotonic()
        return done.value()

    def _count(self) -> None:
        """Where the time went, if a backward pass of DDP has ended since this was last asked."""
        if self._reduced:
            self._computed += self._ready - self._since
            self._waited += self._arrived - self._ready
            self._since = self._arrived
            self._reduced = False


def _trained(optimizer: torch.optim.Optimizer) -> tuple[list[str], list[nn.Parameter]]:
    names, parameters = [], []
    for name, p in named(optimizer).items():
        if not p.requires_grad:
            continue
        if not isinstance(p, nn.Parameter):
            raise OptimizerError(f"{name!r} is a {type(p).__name__}; DDP takes parameters of a module, nn.Parameter")
        names.append(name)
        parameters.append(p)
    if not parameters:
        raise OptimizerError("none of the parameters is to be trained; requires_grad is False for all of them")
    return names, parameters
