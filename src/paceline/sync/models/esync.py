"""ESync: every machine trains a replica for as many local iterations as fit before the slowest is ready (Li et al.).

What a shard sees are whole rounds: a push is the sum of a worker's local steps, and a round closes when every live
worker's is in. How many local steps a worker takes is up to `paceline.sync.state_server`, which it asks after each, and
`paceline.sync.local_steps` is the worker's side of that.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from paceline.sync.models.base import Allowed, Model, Seconds, UpdateRule

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View

Rate = Annotated[float, Allowed("a number above 0", lambda v: type(v) in (int, float) and 0 < v < inf)]
Steps = Annotated[float, Allowed("a whole number from 1, or inf", lambda v: v == inf or (type(v) is int and v >= 1))]


class ESync(Model, frozen=True):
    """Fast workers do more local iterations instead of waiting; `esync(max_steps=1)` is `bsp`."""

    name: ClassVar[str] = "esync"
    examples: ClassVar[tuple[str, ...]] = ("esync", "esync(query=nonblocking)")
    update: ClassVar[UpdateRule] = "round"
    everywhere: ClassVar[bool] = True

    epsilon: Seconds = 0.001
    rate: Rate = 1.0
    query: Literal["blocking", "nonblocking"] = "blocking"
    max_steps: Steps = inf

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock
