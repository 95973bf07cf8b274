"""Asynchronous parallel: nobody waits for anybody (Ahmed et al. 2012)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Model

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View


class ASP(Model, frozen=True):
    """Nobody waits; gradients may be arbitrarily stale."""

    name: ClassVar[str] = "asp"
    examples: ClassVar[tuple[str, ...]] = ("asp",)

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return True
