"""Stale synchronous parallel: a worker may run ahead of the slowest by up to `s` iterations (Ho et al. 2013)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Holding, OpenBound

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View


class SSP(Holding, frozen=True):
    """A worker waits once it is `s` iterations ahead of the slowest. `ssp(0)` is `bsp`, `ssp(inf)` is `asp`."""

    name: ClassVar[str] = "ssp"
    examples: ClassVar[tuple[str, ...]] = ("ssp(s=3)", "ssp(s=2, release=soft)", "ssp(s=0)", "ssp(s=1)", "ssp(s=inf)")

    s: OpenBound

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock + self.s

    def filed(self, view: View, pull: Pulled) -> int:
        # The next round to close, as a rule. Who got further ahead under another model waits until it is within s.
        return pull.iteration if self.release == "lazy" else int(pull.iteration - self.s)
