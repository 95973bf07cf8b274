"""A training script that saves checkpoints and goes on from them: python resuming.py KIND FOLDER STOP [SAVE_AT FORMAT].

All workers have the same batches, so that a run of 1, 2 or 4 of them under `bsp` is a single process, to the bit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import paceline

if __name__ == "__main__":
    from own_optimizer import Heavy  # type: ignore[import-not-found]  # beside the script, as a user's is
else:
    from tests.training.own_optimizer import Heavy

KINDS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    "amsgrad": lambda model: torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True),
    "adagrad": lambda model: torch.optim.Adagrad(model.parameters(), lr=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), lr=0.01),
    "own": lambda model: Heavy(model.parameters(), lr=0.1),
    "groups": lambda model: torch.optim.SGD(_groups(model), lr=0.1, momentum=0.9),
}


def _groups(model: Any) -> list[dict[str, Any]]:
    return [{"params": [*model.first.parameters()], "lr": 0.05}, {"params": [*model.last.parameters(), model.scale]}]


class Net(nn.Module):
    """With a scalar, a frozen and a tied parameter, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(9, 16)
        self.norm = nn.BatchNorm1d(16)
        self.last = nn.Linear(16, 9)
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.frozen = nn.Linear(9, 9)
        self.frozen.requires_grad_(False)
        self.tied = self.last

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(self.scale * self.tied(torch.relu(self.norm(self.first(x)))))  # type: ignore[no-any-return]


def batch(iteration: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(8, 9, generator=torch.Generator().manual_seed(iteration))
    return x, x.roll(1, 1)


def build(kind: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = Net()
    return model, KINDS[kind](model)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
    optimizer.zero_grad()
    x, y = batch(iteration)
    nn.functional.mse_loss(model(x), y).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def train(
    kind: str, folder: Path, stop: int, save_at: int = -1, **options: Any
) -> tuple[nn.Module, paceline.Optimizer]:
    model, optimizer = build(kind)
    loaded = paceline.load_checkpoint(folder / "checkpoints", model, optimizer)
    assert (loaded.extra or {}).keys() == ({"saved at"} if loaded.path else set())
    opt = paceline.Optimizer(optimizer, iteration=loaded.iteration)
    while opt.iteration < stop:
        step(model, opt, opt.iteration)
        if opt.iteration == save_at:
            paceline.save_checkpoint(folder / "checkpoints", model, opt, {"saved at": save_at}, **options)
    return model, opt


if __name__ == "__main__":
    kind, folder, stop, *rest = sys.argv[1:]
    options: dict[str, Any] = {"save_at": int(rest[0]), "format": rest[1]} if rest else {}
    model, opt = train(kind, Path(folder), int(stop), **options)
    torch.save({"model": model.state_dict(), "optimizer": opt.state_dict()}, Path(folder) / f"{opt.rank}.pt")
