"""A user's own optimizer, in a module that servers can import."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class Heavy(torch.optim.Optimizer):
    """A heavy ball whose rate falls with a count that it keeps itself, as a plain number and as a tensor."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state: dict[str, Any] = self.state[p]
                ball: Tensor = state.setdefault("ball", torch.zeros_like(p))
                state["count"] = state.get("count", 0) + 1
                state["weight"] = state.get("weight", torch.tensor(1.0)) * 0.9
                ball.mul_(0.9).add_(p.grad)
                p.add_(ball, alpha=-group["lr"] / (state["count"] + float(state["weight"])))
