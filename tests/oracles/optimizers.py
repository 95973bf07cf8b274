"""Optimizers written down literally: LARS as its paper has it, and ones as users might write them."""

from __future__ import annotations

from typing import Any

import torch


class LARS:
    """You et al., algorithm 1, for whole tensors in one process, each norm in float64."""

    def __init__(
        self, *, lr: float, momentum: float, weight_decay: float, trust: float, eps: float, adapt: bool = True
    ) -> None:
        self.lr, self.momentum, self.weight_decay = lr, momentum, weight_decay
        self.trust, self.eps, self.adapt = trust, eps, adapt
        self.v: torch.Tensor | None = None

    def step(self, w: torch.Tensor, g: torch.Tensor) -> None:
        if self.v is None:
            self.v = torch.zeros_like(w)
        w_norm, g_norm = w.double().norm().item(), g.double().norm().item()
        local_lr = 1.0
        if self.adapt and w_norm and g_norm:
            local_lr = self.trust * w_norm / (g_norm + self.weight_decay * w_norm + self.eps)
        self.v = self.momentum * self.v + self.lr * local_lr * (g + self.weight_decay * w)
        w -= self.v


class Lion(torch.optim.Optimizer):
    """A user's own: every element on its own. It writes to the gradient, as many do."""

    def __init__(self, params: Any, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                    state["step"], state["pace"] = 0, 2.0
                assert (type(state["step"]), type(state["pace"])) == (int, float)
                state["step"] += 1
                p.mul_(1 - group["lr"] * group["decay"])
                p.sub_(torch.sign(state["exp_avg"] * beta1 + p.grad * (1 - beta1)) * group["lr"])
                p.grad.mul_(1 - beta2)
                state["exp_avg"].mul_(beta2).add_(p.grad)


class Normalized(torch.optim.Optimizer):
    """A user's own that cannot be cut: it looks at the norm of the whole gradient."""

    def __init__(self, params: Any, lr: float = 0.1):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad / p.grad.norm() * group["lr"])


class Clipped(torch.optim.SGD):
    """A user's own that cannot be cut, which shows only when gradients are large."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], 1000.0)
        super().step()


class ByShape(torch.optim.SGD):
    """A user's own that treats matrices and rows differently."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() > 1:
                    p.grad.mul_(2)
        super().step()


class Rateless(torch.optim.Optimizer):
    """A user's own without a learning rate."""

    def __init__(self, params: Any):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad)


NOT_AN_OPTIMIZER = 3
