"""DC-ASGD: nobody waits, and a late gradient is corrected for what has changed since (Zheng et al., ICML 2017).

When to answer and when to close is as under `asp`. What is new is `compensation`, which whoever applies the gradients
reads: `paceline.params.compensation` is the arithmetic, and `paceline.params.backups` remembers what each worker was
given. Any other model whose gradients are applied on arrival can have the same property.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from paceline.sync.compensation import Compensation
from paceline.sync.models.base import Allowed, Model

if TYPE_CHECKING:
    from paceline.sync.events import Pulled
    from paceline.sync.view import View

Strength = Annotated[
    float | None, Allowed("a number from 0", lambda v: v is None or (type(v) in (int, float) and 0 <= v < inf))
]
Memory = Annotated[
    float | None,
    Allowed("a number from 0, below 1", lambda v: v is None or (type(v) in (int, float) and 0 <= v < 1)),
]

CONSTANT, ADAPTIVE, MEMORY = 0.04, 2.0, 0.95  # the paper's


class DCASGD(Model, frozen=True):
    """Nobody waits; gradients are corrected for what has changed since they were begun.

    `lam` is how strongly; `dc_asgd(lam=0)` is `asp`. With `kind=adaptive` it follows each element's own gradients.
    """

    name: ClassVar[str] = "dc_asgd"
    examples: ClassVar[tuple[str, ...]] = ("dc_asgd", "dc_asgd(kind=adaptive)")

    lam: Strength = None
    kind: Literal["constant", "adaptive"] = "constant"
    m: Memory = None

    def check(self) -> str | None:
        if self.m is not None and self.kind == "constant":
            return "m is how long squared gradients are remembered, which kind=adaptive does; write kind=adaptive too"
        return None

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return True

    @property
    def compensation(self) -> Compensation | None:
        if self.lam == 0:
            return None
        if self.kind == "constant":
            return Compensation(CONSTANT if self.lam is None else self.lam)
        return Compensation(ADAPTIVE if self.lam is None else self.lam, MEMORY if self.m is None else self.m)
