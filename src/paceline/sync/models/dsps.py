"""Dynamic synchronous parallel strategy: SSP whose bound follows the cluster (Zhang et al. 2017; FluentPS table III).

FluentPS says only that `s` is set at run time. Here `s` is how many more iterations the fastest worker does while the
slowest does one, kept within `[s_min, s_max]`, and set anew every few rounds. A worker's pace is the median of its last
three iterations, so that one slow iteration does not move it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Bound, Holding

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View


ROUNDS = 4  # how long a bound is kept


class Setting:
    """The bound in force, and the round whose closing sets it anew."""

    def __init__(self, s: int, until: int) -> None:
        self.s = s
        self.until = until


class DSPS(Holding, frozen=True):
    """Like `ssp`, but `s` follows the spread of the workers' iteration times within `[s_min, s_max]`."""

    name: ClassVar[str] = "dsps"
    examples: ClassVar[tuple[str, ...]] = ("dsps(s_min=0, s_max=4)", "dsps(s_min=1, s_max=3, release=soft)")
    intervals: ClassVar[int] = 3

    s_min: Bound
    s_max: Bound

    def check(self) -> str | None:
        if self.s_min > self.s_max:
            return f"s_min={self.s_min} is above s_max={self.s_max}"
        return None

    def memory(self, view: View) -> Setting:
        return Setting(self.s_min, view.clock)

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return bool(pull.iteration < view.clock + view.memory.s)

    def closed(self, view: View) -> None:
        if view.clock <= view.memory.until:
            return
        view.memory.until = view.clock - 1 + ROUNDS
        known = [recent for worker in view.workers if (recent := view.intervals(worker))]
        paces = [sorted(recent)[(len(recent) - 1) // 2] for recent in known]
        if paces and (quickest := min(paces)) > 0:
            spread = round(max(paces) / quickest) - 1
            view.memory.s = min(max(spread, self.s_min), self.s_max)
