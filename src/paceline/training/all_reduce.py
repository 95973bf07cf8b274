"""esync without servers in the middle: workers add up what their rounds have changed with torch's own all-reduce.

Everyone takes the outer step himself, on the same numbers. Gloo, or NCCL where all parameters are on a GPU. Who takes
part is fixed: a worker that is lost ends the run for all. One that is done goes on adding nothing until all are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from paceline.nodes import NotFinite, PeerLost
from paceline.sync.models.esync import ESync
from paceline.training.link import TORCHS_OWN
from paceline.training.local import LocalLink
from paceline.training.session import Session
from paceline.training.state import State


class AllReduceLink(LocalLink):
    def __init__(
        self, session: Session, optimizer: TORCHS_OWN, outer: TORCHS_OWN | None, model: ESync, iteration: int
    ) -> None:
        super().__init__(session, optimizer, outer, model, iteration)
        backend = "nccl" if all(p.is_cuda for p in self._parameters) else "gloo"
        self._group = session.group(backend)
        self._steps_outside = outer or torch.optim.SGD(self._parameters, **model.outer)
        self._begins = [p.detach().clone() for p in self._parameters]
        session.before_leaving(self._go_on_adding_nothing)

    def _landing(self, dtype: torch.dtype) -> list[Tensor]:
        return self._parameters

    def take(self, frozen: dict[str, dict[str, Any]]) -> Callable[[], State]:
        """The parameters as they were when the round began, and what this worker's own optimizer remembers."""
        values = {name: begin.clone() for name, begin in zip(self._names, self._begins, strict=True)}
        taken = State(self.worker.iteration, values, frozen)
        return lambda: taken

    @torch.no_grad()
    def _end_round(self) -> None:
        weight = self._weight()
        changes = [change.mul_(weight).view(-1) for change in torch._foreach_sub(self._begins, self._parameters)]
        flat, workers = self._add([*changes, torch.ones_like(changes[0][:1])])
        if not torch.isfinite(flat).all():
            raise NotFinite(f"what round {self.worker.iteration} has changed has NaN or Inf in it")
        self._step_outside(torch.split(flat / workers, [begin.numel() for begin in self._begins]))
        self.worker.end_round()
        torch._foreach_copy_(self._begins, self._parameters)

    def _add(self, parts: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The sum of what all have, and of how many that is: the last element is 1 for those who take part."""
        flat = torch.cat(parts)
        try:
            dist.all_reduce(flat, group=self._group)
        except RuntimeError as error:
            raise PeerLost(f"the all-reduce of round {self.worker.iteration} has failed: {error}") from None
        self.worker.traffic.all_reduced(flat.nbytes, self._session.world_size)
        return flat[:-1], flat[-1]

    def _go_on_adding_nothing(self) -> None:
        self._session.leave()
        nothing = [torch.zeros(self._space.size + 1, dtype=self._begins[0].dtype, device=self._begins[0].device)]
        while self._add(nothing)[1]:
            pass

    def _step_outside(self, changes: tuple[Tensor, ...]) -> None:
        torch._foreach_copy_(self._parameters, self._begins)
        kept = [p.grad for p in self._parameters]
        for p, change in zip(self._parameters, changes, strict=True):
            p.grad = change.view_as(p)
        self._steps_outside.step()
        for p, gradient in zip(self._parameters, kept, strict=True):
            p.grad = gradient
