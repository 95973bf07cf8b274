"""Dynamic synchronous parallel strategy: SSP whose bound follows the cluster (Zhang et al. 2017; FluentPS table III).

FluentPS says only that `s` is set at run time. Here `s` is how many more iterations the fastest worker does while the
slowest does one, kept within `[s_min, s_max]`, and set anew whenever a round closes. A worker's pace is the median of
its last few iterations, so that one slow iteration does not move it.
"""

from __future__ import annotations

from statistics import median_low
from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Bound, Holding

if TYPE_CHECKING:
    from paceline.sync.events import Pulled, Pushed
    from paceline.sync.view import View


class Paces:
    """The bound in force, and how long each worker takes for an iteration."""

    def __init__(self, s: int) -> None:
        self.s = s
        self.of: dict[int, float] = {}


class DSPS(Holding, frozen=True):
    """Like `ssp`, but `s` follows the spread of the workers' iteration times within `[s_min, s_max]`."""

    name: ClassVar[str] = "dsps"
    examples: ClassVar[tuple[str, ...]] = ("dsps(s_min=0, s_max=4)", "dsps(s_min=1, s_max=3, release=soft)")
    intervals: ClassVar[int] = 5

    s_min: Bound
    s_max: Bound

    def check(self) -> str | None:
        if self.s_min > self.s_max:
            return f"s_min={self.s_min} is above s_max={self.s_max}"
        return None

    def memory(self, view: View) -> Paces:
        return Paces(self.s_min)

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return bool(pull.iteration < view.clock + view.memory.s)

    def pushed(self, view: View, push: Pushed) -> None:
        recent = view.intervals(push.worker)
        if recent:
            view.memory.of[push.worker] = median_low(recent)

    def closed(self, view: View) -> None:
        paces = view.memory.of.values()
        if paces and (quickest := min(paces)) > 0:
            spread = round(max(paces) / quickest) - 1
            view.memory.s = min(max(spread, self.s_min), self.s_max)

    def left(self, view: View, worker: int) -> None:
        view.memory.of.pop(worker, None)
