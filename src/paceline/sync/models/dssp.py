"""Dynamic SSP: a worker at the lower bound runs on to where the slowest is expected (Zhao et al., ICDCS 2019).

The worker gets the number of extra iterations, up to `s_high - s_low`, after which its end is nearest to a predicted
push of the slowest worker. Both are predicted from their last iteration, as in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from paceline.sync.models.base import Bound, Holding

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View


class DSSP(Holding, frozen=True):
    """SSP with a bound between `s_low` and `s_high`, chosen for each worker that reaches `s_low`."""

    name: ClassVar[str] = "dssp"
    examples: ClassVar[tuple[str, ...]] = ("dssp(s_low=2, s_high=5)", "dssp(s_low=0, s_high=3, release=soft)")
    intervals: ClassVar[int] = 1

    s_low: Bound
    s_high: Bound

    def check(self) -> str | None:
        if self.s_low > self.s_high:
            return f"s_low={self.s_low} is above s_high={self.s_high}"
        return None

    def memory(self, view: View) -> dict[int, int]:
        return {}  # the first iteration that each worker which went beyond s_low may not pull

    def may_pull(self, view: View, pull: Pulled) -> bool:
        until: dict[int, int] = view.memory
        i, worker = pull.iteration, pull.worker
        if i < view.clock + self.s_low:
            until.pop(worker, None)
            return True
        if worker not in until:
            until[worker] = i + self.extra(view, worker)
        if i < until[worker] and i < view.clock + self.s_high:
            return True
        del until[worker]  # it waits now; once answered it may earn more
        return False

    def left(self, view: View, worker: int) -> None:
        view.memory.pop(worker, None)

    def extra(self, view: View, worker: int) -> int:
        """How many iterations from now the worker's end is nearest to one of the slowest's. The fewest, if several."""
        slowest = view.laggards[0]
        mine, theirs = view.intervals(worker), view.intervals(slowest)
        if not mine or not theirs or theirs[-1] <= 0:
            return 0
        since = view.computing_since(slowest)
        begun = view.now if since is None else since

        def distance(extra: int) -> float:
            end = view.now + extra * mine[-1]
            pushes = max(1, round((end - begun) / theirs[-1]))
            return abs(begun + pushes * theirs[-1] - end)

        return min(range(self.s_high - self.s_low + 1), key=distance)
