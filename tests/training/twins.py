"""The same training three ways: under `ddp` in a run, by torch's own DDP over the real model, and in one process.

Of a run's workers each does the first two, one after the other, and keeps both: `python twins.py FOLDER` is its script.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import paceline

STEPS = 50
WORKERS = 3  # no power of two, so that a mean is rounded
Quiet = Callable[[], AbstractContextManager[Any]]


def made(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Parameters that DDP puts into more than one bucket."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(9, 400), nn.ReLU(), nn.Linear(400, 800), nn.ReLU(), nn.Linear(800, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def batch(step: int, part: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + 10 * part + rank)
    return torch.randn(4, 9, generator=generator), torch.randint(4, (4,), generator=generator)


def parts(step: int) -> range:
    """Every fifth step accumulates the gradients of two batches."""
    return range(2 if step % 5 == 4 else 1)


def train(
    model: nn.Module, forward: nn.Module, optimizer: torch.optim.Optimizer, quiet: Quiet, ranks: list[int]
) -> None:
    for step in range(STEPS):
        optimizer.zero_grad()
        for part in parts(step):
            with quiet() if part < parts(step)[-1] else nullcontext():
                for x, y in (batch(step, part, rank) for rank in ranks):
                    (nn.functional.cross_entropy(forward(x), y) / len(ranks)).backward()  # type: ignore[no-untyped-call]
        if step % 7 == 6:
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()


def alone() -> dict[str, Tensor]:
    """One process with everyone's batches."""
    model, optimizer = made(0)
    train(model, model, optimizer, nullcontext, list(range(WORKERS)))
    return model.state_dict()


def main(folder: Path) -> None:
    model, inner = made(int(os.environ["RANK"]))
    opt = paceline.Optimizer(inner)
    train(model, model, opt, opt.no_sync, [opt.rank])
    twin, optimizer = made(opt.rank)
    wrapped = DistributedDataParallel(twin)
    train(twin, wrapped, optimizer, wrapped.no_sync, [opt.rank])
    torch.save([model.state_dict(), twin.state_dict(), opt.state_dict()["state"]], folder / f"{opt.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
