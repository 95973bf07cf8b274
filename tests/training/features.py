"""A training script that uses one feature of torch, alone or in a run: python features.py FEATURE FOLDER [DEVICE].

All workers have the same batches, so that the mean of two equal gradients is that gradient, to the bit: whatever a
feature does, a run of one or two workers under `bsp` ends where a single process does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import paceline

STEPS = 12
Wrap = Callable[[torch.optim.Optimizer], torch.optim.Optimizer]


class Net(nn.Module):
    def __init__(self, *, sparse: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 9, sparse=True) if sparse else None
        self.first = nn.Linear(9, 16)
        self.norm = nn.BatchNorm1d(16)
        self.middle = nn.Linear(16, 16)
        self.last = nn.Linear(16, 9)
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Linear(9, 9)
        self.frozen.requires_grad_(False)
        self.last.weight = nn.Parameter(self.last.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.table is not None:
            x = x + self.table((x[:, 0] > 0).long() * 4)  # of its rows some get no gradient
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.middle(torch.relu(self.middle(x))))  # used twice
        return self.frozen(self.last(x))  # type: ignore[no-any-return]


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    while True:
        x = torch.randn(8, 9, generator=generator)
        yield x, x.roll(1, 1)


def train(feature: str, wrap: Wrap, device: str = "cpu") -> dict[str, Tensor]:
    torch.manual_seed(3)
    model = Net(sparse=feature == "sparse").to(device)
    optimizer = wrap(OPTIMIZERS.get(feature, sgd)(model))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5) if feature == "schedule" else None
    forward = torch.compile(model, backend="eager") if feature == "compile" else model
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126) if feature == "scaler" else None
    data = batches()
    for _ in range(STEPS):
        optimizer.zero_grad()
        rest = 4 if "accumulate" in feature else 1
        while rest:
            rest -= 1
            x, y = (part.to(device) for part in next(data))
            with optimizer.no_sync() if rest and hasattr(optimizer, "no_sync") else nullcontext():
                with torch.autocast("cpu", torch.bfloat16, enabled=feature in ("autocast", "scaler")):
                    loss = nn.functional.mse_loss(forward(x), y)
                (loss if scaler is None else scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        if feature == "clip":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if scheduler is not None:
            scheduler.step()
    return {name: value.cpu().clone() for name, value in model.state_dict().items()}


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def groups(model: Net) -> torch.optim.Optimizer:
    named: dict[str, Any] = {"params": [*model.first.parameters(), *model.norm.parameters()], "lr": 0.01}
    rest = [p for part in (model.middle, model.last, model.unused, model.frozen) for p in part.parameters()]
    return torch.optim.Adam([named, {"params": rest, "betas": (0.8, 0.9)}], lr=0.002)


OPTIMIZERS: dict[str, Callable[[Net], torch.optim.Optimizer]] = {
    "groups": groups,
    "names": lambda model: torch.optim.AdamW(model.named_parameters(), lr=0.01, weight_decay=0),
    "sparse": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    overlap = sys.argv[1].startswith("overlap")
    made: list[paceline.Optimizer] = []

    def wrap(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        made.append(paceline.Optimizer(optimizer, overlap=overlap))
        return made[0]

    state = train(sys.argv[1].removeprefix("overlap "), wrap, *sys.argv[3:])
    torch.save(state, Path(sys.argv[2]) / f"{made[0].rank}.pt")
