"""What a target is: one table or figure of a paper, the cluster that we assume for it, and what we get.

A target's `run` gives rows, each a cell of the paper beside ours, and claims, each with a verdict that `verdicts` has
computed from the figures. `draw` makes the figure of that result. A run that takes long tells its `progress` what it is
at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from paceline.sim.cluster import Cluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Verdict = Literal["holds", "holds in direction", "does not hold"]
Progress = Callable[[int, int, str], None]  # how many of how many parts are done, and what comes now


class Row(Struct, frozen=True):
    """One cell. `calibrated` if the cluster was fitted to it, so that it proves nothing."""

    group: str
    cell: str
    paper: float | None
    ours: float | None
    unit: str
    calibrated: bool = False


class Claim(Struct, frozen=True):
    """What a paper says, whether it is so here, by which rule, and why: with the figures that were computed."""

    text: str
    verdict: Verdict
    rule: str
    why: str


class Curve(Struct, frozen=True):
    """How accurate a model was over virtual time, in one run of it."""

    panel: str
    name: str
    seconds: list[float]
    accuracies: list[float]


class Result(Struct, frozen=True):
    rows: list[Row]
    claims: list[Claim]
    notes: list[str] = []
    curves: list[Curve] = []

    def ours(self, group: str, cell: str) -> float:
        """Of a cell that was measured."""
        return next(row.ours for row in self.rows if (row.group, row.cell) == (group, cell) and row.ours is not None)

    def groups(self) -> list[str]:
        return list(dict.fromkeys(row.group for row in self.rows))

    def of(self, group: str) -> list[Row]:
        return [row for row in self.rows if row.group == group]


class Target(Struct, frozen=True):
    """`run` takes whether it is to be quick. `cluster` is None where nothing is simulated.

    Where it `learns`, networks are trained in virtual time: minutes when it is quick, and hours without a GPU if not.
    """

    name: str
    paper: str  # and which table or figure of it
    shows: str
    takes: str  # how long, in words
    assumed: tuple[str, ...]
    calibrated: str
    cluster: Cluster | None
    run: Callable[[bool, Progress], Result]
    draw: Callable[[Result], Figure]
    learns: bool = False


def silent(done: int, total: int, what: str) -> None:
    """Progress that nobody looks at."""
