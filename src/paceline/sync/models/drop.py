"""Drop stragglers: a round closes with the first `n_t` gradients (Chen et al. 2016; FluentPS table III).

FluentPS leaves open how a dropped worker catches up. Here its next grant takes it to the open round; else it would
compute gradients of closed rounds for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Count, Holding, UpdateRule

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View


class DropStragglers(Holding, frozen=True):
    """Like `bsp`, but the first `n_t` gradients close a round; those that come later are dropped and counted."""

    name: ClassVar[str] = "drop"
    examples: ClassVar[tuple[str, ...]] = ("drop(n_t=3)", "drop(n_t=1)")
    update: ClassVar[UpdateRule] = "round"
    jumps: ClassVar[bool] = True

    n_t: Count

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock

    def filed(self, view: View, pull: Pulled) -> int:
        return pull.iteration  # lazy and soft are the same here: nobody is answered before its own round has closed

    def may_close(self, view: View) -> bool:
        return view.count(view.clock) >= min(self.n_t, view.live)
