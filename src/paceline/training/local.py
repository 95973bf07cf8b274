"""Under esync: a worker's own optimizer steps on a replica, and what a round of its steps has changed goes to the
servers as if it were a gradient. There the outer optimizer takes the mean of all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from paceline import params
from paceline.nodes import LocalWorker, Snapshot
from paceline.params import OptimizerError
from paceline.sync.models.esync import ESync
from paceline.training.link import TORCHS_OWN, Closure, Link, described, named
from paceline.training.session import Session
from paceline.training.state import State, from_snapshot


class LocalLink(Link):
    """Beside the parameters it has what they were when the round began: on a GPU if all of them are, else flat."""

    steps_alone = True
    worker: LocalWorker

    def __init__(
        self, session: Session, optimizer: TORCHS_OWN, outer: TORCHS_OWN | None, model: ESync, iteration: int
    ) -> None:
        self._model = model
        self._outer = outer
        self._begins: list[Tensor] = []  # on a GPU
        self._begun: Tensor | None = None  # flat
        # The learning rates that there have been: torch's schedules say which they began with, also before this run.
        self._highest = [float(group.get("initial_lr", 0.0)) for group in optimizer.param_groups]
        super().__init__(session, optimizer, iteration)
        self._begin_round()
        self._since = monotonic()

    @property
    def synchronized(self) -> bool:  # type: ignore[override]
        return not self.worker.rounds.steps

    def step(self, closure: Closure | None = None) -> Any:
        """A local iteration; with the last one of a round, go on with the parameters of all together."""
        loss = None
        if closure is not None and not isinstance(self._optimizer, torch.optim.LBFGS):
            with torch.enable_grad():
                loss = closure()
        self._check()
        since = self._since
        self._session.slow_down(monotonic() - since)
        begun = monotonic()

        def step() -> None:
            nonlocal loss, begun
            if isinstance(self._optimizer, torch.optim.LBFGS) and closure is not None:
                loss = self._optimizer.step(closure)  # type: ignore[no-untyped-call]
            else:
                self._optimizer.step()
            self._highest = [
                max(so_far, rate) for so_far, rate in zip(self._highest, _rates(self._optimizer), strict=True)
            ]
            begun = monotonic()

        blocked = None
        if self.worker.local_step(step):
            over = monotonic()
            self._end_round()
            blocked = monotonic() - over
            self._begin_round()
        self._since = monotonic()
        self._session.went_on(begun - since, self._since - begun, blocked)
        return loss

    def take(self, frozen: dict[str, dict[str, Any]]) -> Callable[[], State]:
        """The parameters as the servers have them, and what this worker's own optimizer remembers.

        What the outer one remembers is not part of it.
        """
        taking = self.worker.snapshot()

        def finish() -> State:
            taken = taking.finish()
            return from_snapshot(Snapshot(taken.values, clock=taken.clock), "", self._space, frozen)

        return finish

    def watch(self, wanted: Callable[[], bool]) -> None:
        """Nothing leaves during backward: gradients stay here."""

    def _join(self, trained: dict[str, Tensor], dtype: torch.dtype, iteration: int) -> LocalWorker:
        """The servers run the outer optimizer."""
        outer = params.Optimizer("sgd", self._model.outer)
        if self._outer is not None:
            outer = described(self._outer, named(self._optimizer))
        first = Snapshot({name: p.detach().to("cpu", dtype) for name, p in trained.items()}, clock=iteration)
        in_place = self._reads_in_place
        return self._session.join(self._space, dtype, outer, first, kind=LocalWorker, in_place=in_place)

    def _landing(self, dtype: torch.dtype) -> list[Tensor]:
        self._begins = [torch.empty_like(p, dtype=dtype, requires_grad=False) for p in self._parameters]
        return self._begins

    @torch.no_grad()
    def _take(self) -> None:
        super()._take()
        if self._begins:
            torch._foreach_copy_(self._parameters, self._begins)
        elif not self.worker.in_place:
            self._begun = (
                self.worker.parameters.clone() if self._begun is None else self._begun.copy_(self.worker.parameters)
            )

    def _begin_round(self) -> None:
        self.worker.begin_round(self._sum_up)

    def _end_round(self) -> None:
        self.worker.end_round()
        self._take()

    @torch.no_grad()
    def _sum_up(self) -> None:
        """What the round has changed, as a gradient: the way back from where it has led.

        On a GPU it takes the place of what the parameters were, which comes anew with the next round.
        """
        weight = self._weight()
        if self._begun is None:
            torch._foreach_sub_(self._begins, self._parameters)
            if weight != 1.0:
                torch._foreach_mul_(self._begins, weight)
            self._copies.out(self._gradients, self._begins)
            self._copies.finish()
            return
        self._copies.out([value for _, value in self._copied], [p for p, _ in self._copied])
        self._copies.finish()
        torch.sub(self._begun, self.worker.parameters, out=self.worker.gradients)
        if weight != 1.0:
            self.worker.gradients.mul_(weight)

    def _weight(self) -> float:
        """What this worker's part of the round is to be multiplied by."""
        rounds = self.worker.rounds
        fallen = min(
            so_far / rate if rate else inf for so_far, rate in zip(self._highest, _rates(self._optimizer), strict=True)
        )
        return self._model.weight(rounds.steps, rounds.most, fallen)


def check_outer(outer: TORCHS_OWN, optimizer: TORCHS_OWN, model: ESync) -> None:
    """Is it the only one, and for the same parameters?"""
    if not model.adds_the_mean:
        raise OptimizerError(f"{model} and an outer optimizer contradict each other; give that one rate and momentum")
    if _trained(outer) != _trained(optimizer):
        raise OptimizerError(
            "the outer optimizer has other parameters than the one it is to go with; give both model.parameters()"
        )


def _rates(optimizer: TORCHS_OWN) -> list[float]:
    return [float(group.get("lr", 1.0)) for group in optimizer.param_groups]


def _trained(optimizer: TORCHS_OWN) -> set[int]:
    groups: Iterable[dict[str, Any]] = optimizer.param_groups
    return {id(p) for group in groups for p in group["params"] if p.requires_grad}
