"""Probabilistic SSP: a worker that is `s` or more ahead is held with some probability only (FluentPS, section III-E).

Constant: held with probability `c`. Dynamic: with `alpha / (1 + exp(s - k))`, which grows with the gap `k`; `alpha` is
a number, or the significance `|g| / |w|` of the worker's last gradient.

The paper draws a coin on every server. Here a worker's iteration has one coin for all shards, so that adding servers
does not change the model; `coin=shard` is the paper's.
"""

from __future__ import annotations

from math import exp, inf
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from paceline.sync.coin import coin
from paceline.sync.models.base import Allowed, Bound, Holding, Probability

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View

Alpha = Annotated[
    float | str | None,
    Allowed(
        "a number above 0, or significance",
        lambda v: v is None or v == "significance" or (type(v) in (int, float) and 0 < v < inf),
    ),
]
MaybeProbability = Annotated[
    float | None, Allowed(Probability.__metadata__[0].words, lambda v: v is None or Probability.__metadata__[0].test(v))
]


class PSSP(Holding, frozen=True):
    """Like `ssp(s)`, but a worker at the bound waits with probability `c`, or with one that grows with its lead."""

    name: ClassVar[str] = "pssp"
    examples: ClassVar[tuple[str, ...]] = (
        "pssp(s=1, c=0.5)",
        "pssp(s=2, c=0.3, release=soft)",
        "pssp(s=0, alpha=0.8)",
        "pssp(s=1, alpha=significance)",
        "pssp(s=1, c=0.5, coin=shard)",
    )

    s: Bound
    c: MaybeProbability = None
    alpha: Alpha = None
    coin: Literal["worker", "shard"] = "worker"

    def check(self) -> str | None:
        if (self.c is None) == (self.alpha is None):
            return "give either c (constant) or alpha (dynamic), such as pssp(s=3, c=0.5) or pssp(s=3, alpha=0.8)"
        return None

    @property
    def weighs(self) -> bool:
        return self.alpha == "significance"

    def may_pull(self, view: View, pull: Pulled) -> bool:
        gap = pull.iteration - view.clock
        if gap < self.s:
            return True
        salt = view.index if self.coin == "shard" else -1
        return coin(view.seed, pull.worker, pull.iteration, salt) >= self.chance(view, pull.worker, gap)

    def chance(self, view: View, worker: int, gap: int) -> float:
        """With which probability a worker this far ahead is held."""
        if self.c is not None:
            return self.c
        alpha = view.significance(worker) if isinstance(self.alpha, str) else self.alpha
        assert alpha is not None
        return alpha / (1 + exp(self.s - gap))

    @property
    def same_regret_as(self) -> float | None:
        """The `s` of the SSP with the same bound on the regret: `s + 1/c - 1`. For dynamic PSSP `c` is `alpha / 2`."""
        c = self.c if self.c is not None else self.alpha / 2 if isinstance(self.alpha, int | float) else None
        if c is None:
            return None
        return inf if c == 0 else self.s + 1 / c - 1
