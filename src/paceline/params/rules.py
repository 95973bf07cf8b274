"""The arithmetic of the optimizers: one step of some elements, by torch's own functions.

Every rule works on elements only, so that a tensor can be cut anywhere. torch's fused kernels make one pass where its
plain ones make up to eight, but they round differently, and not alike within a row and at its end. An `exact` rule
takes the plain ones: the very bits of `torch.optim` as it comes, wherever a tensor is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

from paceline.params.optimizer import Settings, betas, number


class Rule:
    """How an optimizer with these settings steps. A gradient is only read."""

    state: tuple[str, ...] = ()  # what it remembers for each element
    fused = False  # one pass over the memory
    linear = False  # the step is the rate times the gradient, so that a scale of the gradient may go into the rate

    def initial(self, name: str) -> float:
        """What a state begins with."""
        return 0.0

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        """The step number `count`, from 1."""
        raise NotImplementedError

    def step_from(
        self, old: Tensor, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int
    ) -> None:
        """The same, but from values that are left as they are."""
        values.copy_(old)
        self.step(values, gradient, state, lr, count)


class SGD(Rule):
    """With momentum, Nesterov's too."""

    def __init__(self, settings: Settings, exact: bool) -> None:
        self.momentum = number(settings, "momentum")
        self.dampening = number(settings, "dampening")
        self.weight_decay = number(settings, "weight_decay")
        self.nesterov = bool(settings["nesterov"])
        self.maximize = bool(settings["maximize"])
        self.linear = not (self.momentum or self.weight_decay)
        self.fused = not (exact or self.linear)
        self.state = ("momentum_buffer",) if self.momentum else ()

    def step_from(
        self, old: Tensor, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int
    ) -> None:
        if self.linear:
            torch.add(old, gradient, alpha=lr if self.maximize else -lr, out=values)
        else:
            super().step_from(old, values, gradient, state, lr, count)

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        if self.linear:
            values.add_(gradient, alpha=lr if self.maximize else -lr)
            return
        buffers: list[Tensor | None] = [state[0] if self.momentum and count > 1 else None]
        sgd(
            [values],
            [gradient],
            buffers,
            foreach=False,
            fused=self.fused,
            lr=lr,
            momentum=self.momentum,
            dampening=self.dampening,
            weight_decay=self.weight_decay,
            nesterov=self.nesterov,
            maximize=self.maximize,
        )
        if self.momentum and count == 1:
            assert buffers[0] is not None
            state[0].copy_(buffers[0])


class Adam(Rule):
    """Adam and AdamW."""

    def __init__(self, settings: Settings, exact: bool, decoupled: bool = False) -> None:
        self.beta1, self.beta2 = betas(settings)
        self.eps = number(settings, "eps")
        self.weight_decay = number(settings, "weight_decay")
        self.amsgrad = bool(settings["amsgrad"])
        self.maximize = bool(settings["maximize"])
        self.decoupled = decoupled or bool(settings.get("decoupled_weight_decay"))
        self.fused = not exact
        self.state = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if self.amsgrad else ()))

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        adam(
            [values],
            [gradient],
            [state[0]],
            [state[1]],
            list(state[2:]),
            [torch.tensor(count - 1.0)],
            foreach=False,
            fused=self.fused,
            decoupled_weight_decay=self.decoupled,
            amsgrad=self.amsgrad,
            beta1=self.beta1,
            beta2=self.beta2,
            lr=lr,
            weight_decay=self.weight_decay,
            eps=self.eps,
            maximize=self.maximize,
        )


class AdaGrad(Rule):
    state = ("sum",)

    def __init__(self, settings: Settings, exact: bool) -> None:
        self.lr_decay = number(settings, "lr_decay")
        self.weight_decay = number(settings, "weight_decay")
        self.first = number(settings, "initial_accumulator_value")
        self.eps = number(settings, "eps")
        self.maximize = bool(settings["maximize"])
        self.fused = not exact

    def initial(self, name: str) -> float:
        return self.first

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        adagrad(
            [values],
            [gradient],
            [state[0]],
            [torch.tensor(count - 1.0)],
            fused=self.fused,
            foreach=False,
            lr=lr,
            weight_decay=self.weight_decay,
            lr_decay=self.lr_decay,
            eps=self.eps,
            maximize=self.maximize,
        )


class RMSProp(Rule):
    """torch has no fused kernel for it."""

    def __init__(self, settings: Settings, exact: bool) -> None:
        self.alpha = number(settings, "alpha")
        self.eps = number(settings, "eps")
        self.weight_decay = number(settings, "weight_decay")
        self.momentum = number(settings, "momentum")
        self.centered = bool(settings["centered"])
        self.maximize = bool(settings["maximize"])
        self.state = ("square_avg",)
        self.state += ("grad_avg",) if self.centered else ()
        self.state += ("momentum_buffer",) if self.momentum else ()

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        named = dict(zip(self.state, state, strict=True))
        rmsprop(
            [values],
            [gradient],
            [named["square_avg"]],
            [named["grad_avg"]] if self.centered else [],
            [named["momentum_buffer"]] if self.momentum else [],
            [torch.tensor(count - 1.0)],
            foreach=False,
            lr=lr,
            alpha=self.alpha,
            eps=self.eps,
            weight_decay=self.weight_decay,
            momentum=self.momentum,
            centered=self.centered,
            maximize=self.maximize,
        )


class LARS(Rule):
    """You et al., algorithm 1. What the rate is for this tensor, its norms have said already."""

    state = ("momentum_buffer",)

    def __init__(self, settings: Settings) -> None:
        self.momentum = number(settings, "momentum")
        self.weight_decay = number(settings, "weight_decay")
        self.maximize = bool(settings["maximize"])

    def step(self, values: Tensor, gradient: Tensor, state: Sequence[Tensor], lr: float, count: int) -> None:
        if self.maximize:
            gradient = -gradient
        state[0].mul_(self.momentum).add_(gradient.add(values, alpha=self.weight_decay), alpha=lr)
        values.sub_(state[0])


def rule(name: str, settings: Settings, *, exact: bool) -> Rule:
    """The rule of a built-in optimizer."""
    match name:
        case "adam" | "adamw":
            return Adam(settings, exact, decoupled=name == "adamw")
        case "adagrad":
            return AdaGrad(settings, exact)
        case "rmsprop":
            return RMSProp(settings, exact)
        case "lars":
            return LARS(settings)
        case _:
            return SGD(settings, exact)
