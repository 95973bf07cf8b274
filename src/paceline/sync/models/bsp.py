"""Bulk synchronous parallel: nobody starts an iteration before everyone has finished the one before (Valiant 1990)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Holding, UpdateRule

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View


class BSP(Holding, frozen=True):
    """Everyone waits for everyone at each iteration; the same as large-batch SGD in one process."""

    name: ClassVar[str] = "bsp"
    examples: ClassVar[tuple[str, ...]] = ("bsp", "bsp(release=soft)")
    update: ClassVar[UpdateRule] = "round"

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock

    def filed(self, view: View, pull: Pulled) -> int:
        return pull.iteration  # lazy and soft are the same here: nobody is answered before its own round has closed
