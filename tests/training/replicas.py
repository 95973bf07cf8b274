"""A training script for esync: python replicas.py ROUNDS INNER OUTER FOLDER SOONER IN_PLACE FALLS.

Worker 1 does SOONER rounds less. If IN_PLACE, parameters are read and kept as if they were on a GPU. With each local
iteration the learning rate becomes FALLS times as high.

Every worker has batches of its own, by the number of the local iteration. What the parameters are when each round
begins is saved, how many local iterations there were in it, and how many the fastest worker is said to have done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import paceline
from paceline.training.link import Link
from paceline.training.local import LocalLink

INNER: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "resumed": lambda model: torch.optim.SGD([{"params": model.parameters(), "initial_lr": 0.4}], lr=0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "lbfgs": lambda model: torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3),
}


def nesterov(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(9, 17), nn.Tanh(), nn.Linear(17, 3))


def loss(model: nn.Module, rank: int, iteration: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + iteration)
    x, y = torch.randn(8, 9, generator=generator), torch.randn(8, 3, generator=generator)
    return nn.functional.mse_loss(model(x), y)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def main(rounds: int, inner: str, outer: str, folder: Path, sooner: int, *, in_place: bool, falls: float) -> None:
    torch.set_num_threads(1)
    if in_place:
        Link._reads_in_place = True  # type: ignore[assignment, method-assign]
    model = network()
    opt = paceline.Optimizer(INNER[inner](model), outer=nesterov(model) if outer == "nesterov" else None)
    schedule = torch.optim.lr_scheduler.ExponentialLR(opt, falls)
    begins, steps, most, iteration = [flat(model)], [0], [], 0
    gradients: list[Tensor] = []

    def closure() -> Tensor:
        opt.zero_grad()
        found = loss(model, opt.rank, iteration)
        found.backward()  # type: ignore[no-untyped-call]
        gradients[:] = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return found

    while opt.iteration < rounds - sooner * opt.rank:
        opt.step(closure)
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            assert p.grad is not None
            assert torch.equal(p.grad, gradient), "a step leaves the script's gradients as they are"
        schedule.step()
        iteration += 1
        steps[-1] += 1
        if opt.synchronized:
            begins.append(flat(model))
            steps.append(0)
            if isinstance(opt._link, LocalLink):
                most.append(opt._link.worker.rounds.most)
    found = {"begins": torch.stack(begins), "steps": torch.tensor(steps[:-1]), "most": torch.tensor(most)}
    torch.save(found, folder / f"{opt.rank}.pt")


if __name__ == "__main__":
    _, rounds, inner, outer, folder, sooner, in_place, falls = sys.argv
    main(int(rounds), inner, outer, Path(folder), int(sooner), in_place=in_place == "True", falls=float(falls))
