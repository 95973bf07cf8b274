"""DC-ASGD, algorithms 1 and 2 of Zheng et al. (ICML 2017), written down as the paper has them.

What is not in the paper: a gradient counts for one of M workers, as all of Paceline's that are applied on arrival, and
the step is torch's own SGD, so that there may be momentum.
"""

from __future__ import annotations

import torch
from torch import Tensor


class ParameterServer:
    """Algorithm 2. With `m` lambda is adaptive: section 4, `lambda_0 / sqrt(MeanSquare(t) + epsilon)`."""

    def __init__(self, w_0: Tensor, M: int, eta: float, lambda_0: float, m: float | None, momentum: float) -> None:
        self.M = M
        self.lambda_0, self.m, self.epsilon = lambda_0, m, 1e-7
        self.w = torch.nn.Parameter(w_0.clone())
        self.w_bak = {worker: w_0.clone() for worker in range(M)}
        self.MeanSquare = torch.zeros_like(w_0)
        self.sgd = torch.optim.SGD([self.w], lr=eta, momentum=momentum)

    def receive_gradient(self, worker: int, g: Tensor) -> None:
        w_t = self.w.detach()
        compensated = g + self.lambda_t(g) * g * g * (w_t - self.w_bak[worker])
        self.w.grad = compensated * (1 / self.M)
        self.sgd.step()

    def receive_pull_request(self, worker: int) -> Tensor:
        self.w_bak[worker] = self.w.detach().clone()
        return self.w_bak[worker].clone()

    def lambda_t(self, g: Tensor) -> float | Tensor:
        if self.m is None:
            return self.lambda_0
        self.MeanSquare = self.m * self.MeanSquare + (1 - self.m) * g * g
        return self.lambda_0 / (self.MeanSquare + self.epsilon).sqrt()
