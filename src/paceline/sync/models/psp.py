"""PSP-SGD, partially synchronous parallelism: a round closes without the slowest workers, and a worker starts without
the slowest servers.

This is the server's side of the paper's algorithm 1; `paceline.sync.partial_pull` is the worker's. A round takes every
gradient that is not older than itself, and closes `tau_push` after the `c`-th or as soon as every live worker's is in.

One thing is ours. With several servers a worker can be ahead of a server that it did not wait for. Such a server also
closes a round that `c` live workers, or all of them, have left behind; by the letter of the paper it would wait for
gradients of it that nobody computes any more, and stay behind for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from paceline.sync.models.base import Count, Model, Seconds, UpdateRule

if TYPE_CHECKING:
    from paceline.sync.events import Pulled, Pushed
    from paceline.sync.view import View


class Round:
    """The open round: how many gradients it has, and until when it takes more."""

    def __init__(self) -> None:
        self.gradients = 0
        self.deadline: float | None = None


class PSP(Model, frozen=True, kw_only=True):
    """A round needs `c` gradients, a worker the share `b` of the blocks; timeouts let either take a few more."""

    name: ClassVar[str] = "psp"
    examples: ClassVar[tuple[str, ...]] = (
        "psp(c=3)",
        "psp(c=2, b=0.9, tau_push=5.0, tau_pull=2.0)",
        "psp(c=1)",
        "psp(c=100)",
    )
    update: ClassVar[UpdateRule] = "round"
    jumps: ClassVar[bool] = True
    order: ClassVar[tuple[str, ...]] = ("c", "b", "tau_push", "tau_pull", "scaling")

    c: Count
    tau_push: Seconds = 0.0
    scaling: Literal["linear", "mean"] = "linear"

    def memory(self, view: View) -> Round:
        return Round()

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock

    def may_close(self, view: View) -> bool:
        past, open_round = view.count(view.clock), view.memory
        if past >= view.live:
            return True
        if max(open_round.gradients, past) < self.c:
            return False
        if open_round.deadline is None:
            open_round.deadline = view.now + self.tau_push
        return bool(view.now >= open_round.deadline)

    def round(self, view: View, push: Pushed) -> int:
        return view.clock

    def pushed(self, view: View, push: Pushed) -> None:
        if push.iteration >= view.clock:
            view.memory.gradients += 1

    def closed(self, view: View) -> None:
        view.memory.gradients = 0
        view.memory.deadline = None

    def wake(self, view: View) -> float | None:
        deadline: float | None = view.memory.deadline
        return deadline
