"""ESync: every machine trains a replica for as many local iterations as fit before the slowest is ready (Li et al.).

What a shard sees are whole rounds: a push is the sum of a worker's local steps, and a round closes when every live
worker's is in. How many local steps a worker takes is up to `paceline.sync.state_server`, which it asks after each, and
`paceline.sync.local_steps` is the worker's side of that. With `steps` it is a fixed number, and nobody is asked.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from paceline.sync.models.base import Allowed, Model, Seconds, UpdateRule

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View

Rate = Annotated[float, Allowed("a number above 0", lambda v: type(v) in (int, float) and 0 < v < inf)]
Steps = Annotated[float, Allowed("a whole number from 1, or inf", lambda v: v == inf or (type(v) is int and v >= 1))]
Momentum = Annotated[float, Allowed("a number from 0 to below 1", lambda v: type(v) in (int, float) and 0 <= v < 1)]
Times = Annotated[float, Allowed("a number from 0, or inf", lambda v: type(v) in (int, float) and v >= 0)]
FixedSteps = Annotated[
    int | None, Allowed("a whole number from 1, or none", lambda v: v is None or (type(v) is int and v >= 1))
]


class ESync(Model, frozen=True):
    """Fast workers do more local iterations instead of waiting; `esync(max_steps=1)` is `bsp`."""

    name: ClassVar[str] = "esync"
    examples: ClassVar[tuple[str, ...]] = ("esync", "esync(query=nonblocking)", "esync(steps=3)", "esync(momentum=0.8)")
    update: ClassVar[UpdateRule] = "round"
    everywhere: ClassVar[bool] = True

    epsilon: Seconds = 0.000001
    rate: Rate = 1.0
    momentum: Momentum = 0.0
    query: Literal["blocking", "nonblocking"] = "blocking"
    max_steps: Steps = inf
    steps: FixedSteps = None
    aggregate: Literal["servers", "all_reduce"] = "servers"
    balance: Times = 0.0

    def check(self) -> str | None:
        if self.steps is not None and self.max_steps != inf:
            return "give either steps, which is a fixed number, or max_steps, which is the most there may be"
        return None

    @property
    def asks(self) -> bool:
        """Does it need a State Server?"""
        return self.steps is None and self.max_steps > 1

    @property
    def one_step(self) -> bool:
        """Has every round one local step, whatever the State Server would say?"""
        return self.steps == 1 or self.max_steps == 1

    @property
    def outer(self) -> dict[str, Any]:
        """Settings of the SGD that takes the mean of what a round has changed; its momentum is Nesterov's."""
        return {"lr": self.rate, "momentum": self.momentum, "nesterov": self.momentum > 0}

    @property
    def adds_the_mean(self) -> bool:
        """Is that nothing but adding the mean?"""
        return self.rate == 1 and self.momentum == 0

    def weight(self, steps: int, most: int, fallen: float) -> float:
        """By how much to multiply what `steps` iterations have changed, where the fastest worker has done `most`.

        At most so much that an iteration of every worker's weighs alike in the end. An iteration is a step on one batch
        all the same, and more than `balance` times the highest learning rate so far it never gets: `fallen` is how many
        times as high as now that was.
        """
        return min(max(most / steps, 1.0), max(self.balance * fallen if self.balance else 0.0, 1.0))

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock
