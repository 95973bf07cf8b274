"""The one line that a training script changes: `opt = paceline.Optimizer(torch.optim.SGD(model.parameters(), ...))`.

It is a `torch.optim.Optimizer` with the groups and the settings of the one that it wraps. Alone, without a launcher,
its `step` is that one's. In a run, `step` pushes the gradients to the servers, which do the same arithmetic, and goes
on when the synchronization model in force lets it, with the parameters as they are then.

What stays with each worker: buffers, such as the running statistics of batch norm. They are not parameters, no gradient
changes them, and every worker keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from paceline.params import OptimizerError
from paceline.sync.models.esync import ESync
from paceline.training.all_reduce import AllReduceLink
from paceline.training.ddp import Reduced
from paceline.training.link import Link, named
from paceline.training.local import LocalLink, check_outer
from paceline.training.saving import Saving
from paceline.training.session import Session, session
from paceline.training.state import State


class Optimizer(torch.optim.Optimizer):
    """`overlap` pushes each slice as soon as backward has its gradients. It is off unless asked for, because that is
    before anybody could clip them, and at every backward that is not within `no_sync()`.

    In a run, connecting takes place here, as it does in DDP: the parameters of worker 0 become everyone's, and so does
    what its optimizer remembers, if it was loaded. `iteration` is how many there were before.

    Under `esync` each worker steps by itself, with any optimizer of torch, and `outer` is what takes all their rounds
    into the common parameters, such as `torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)`.
    Without one it is their mean, times the model's `rate`. Other models have no use for it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        outer: torch.optim.Optimizer | None = None,
        overlap: bool = False,
        iteration: int = 0,
        place: Session | None = None,
    ) -> None:
        if iteration < 0:
            raise OptimizerError(f"iteration is {iteration}; it is how many there were before, 0 or more")
        if isinstance(optimizer, Optimizer):
            raise OptimizerError("this is a paceline.Optimizer already; wrap one of torch.optim")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._inner = optimizer
        self._share()
        self._session = place or session()
        self._sync = True
        self._iteration = iteration  # alone
        self.saving = Saving()
        self._link: Link | Reduced | None = None
        if self._session is not None:
            by_ddp = self._session.by_ddp
            self._link = _link(self._session, self._inner, outer, iteration)
            self._session.before_leaving(self.saving.wait)
            if overlap or by_ddp:  # which always overlaps
                self._link.watch(lambda: self._sync)

    @property
    def alone(self) -> bool:
        """Is there no run that this takes part in?"""
        return self._link is None

    @property
    def rank(self) -> int:
        """Which worker this is; 0 if it is alone."""
        return 0 if self._session is None else self._session.rank

    @property
    def world_size(self) -> int:
        return 1 if self._session is None else self._session.world_size

    @property
    def iteration(self) -> int:
        """The iteration under way, from 0."""
        return self._iteration if self._link is None else self._link.worker.iteration

    @property
    def synchronized(self) -> bool:
        """Are the parameters those of all together? Under esync, within a round, they are this worker's own."""
        return self._link is None or self._link.synchronized

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push the gradients and go on with the parameters that come back."""
        if self._link is None:
            self._iteration += 1
            return self._inner.step() if closure is None else self._inner.step(closure)
        return self._link.step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._inner.zero_grad(set_to_none)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """With `overlap`: backward passes in here only accumulate; the first one after it pushes."""
        self._sync, before = False, self._sync
        try:
            yield
        finally:
            self._sync = before

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if not hasattr(self, "_inner"):  # the base class sets the groups up
            super().add_param_group(param_group)
        elif self._link is not None:
            raise OptimizerError("the parameters of a run are fixed; add groups before wrapping the optimizer")
        else:
            self._inner.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """As torch's own. In a run, what the optimizer remembers is fetched from the servers, which takes a while."""
        mine = self._inner.state_dict()
        if self._link is not None:
            remembered = self.take()().remembered
            mine["state"] = {n: remembered[name] for n, name in enumerate(self.named) if name in remembered}
        return mine

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._link is not None:
            raise OptimizerError(
                "the run has begun; load into torch's own optimizer before it is wrapped, and the run starts from that"
            )
        self._inner.load_state_dict(state_dict)
        self._share()

    # For checkpoints.

    @property
    def kind(self) -> str:
        """Which optimizer it wraps."""
        return type(self._inner).__name__

    @property
    def named(self) -> dict[str, Tensor]:
        """All parameters, in torch's order."""
        return named(self._inner)

    def take(self) -> Callable[[], State]:
        """A copy as of now. In a run it is on its way when this returns; the function waits for it, on any thread."""
        names = {id(p): name for name, p in self.named.items()}
        mine = {
            names[id(p)]: {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
            for p, state in self._inner.state.items()
            if self._link is None or self._link.steps_alone or not p.requires_grad
        }
        if self._link is not None:
            return self._link.take(mine)
        taken = State(self._iteration, {}, mine)
        return lambda: taken

    def _share(self) -> None:
        self.param_groups = self._inner.param_groups
        self.state = self._inner.state


def _link(
    session: Session, optimizer: torch.optim.Optimizer, outer: torch.optim.Optimizer | None, iteration: int
) -> Link | Reduced:
    """What the model needs. Where all rounds have one local step, servers take it: that is bsp, to the bit."""
    if session.by_ddp:
        return Reduced(session, optimizer, iteration)
    model = session.model
    if not isinstance(model, ESync):
        return Link(session, optimizer, iteration)
    if outer is not None:
        check_outer(outer, optimizer, model)
    if model.aggregate == "all_reduce":
        return AllReduceLink(session, optimizer, outer, model, iteration)
    if model.one_step and outer is None and model.adds_the_mean:
        return Link(session, optimizer, iteration)
    return LocalLink(session, optimizer, outer, model, iteration)
