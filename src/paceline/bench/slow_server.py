"""What servers that now and then answer late cost, with and without partial pulling.

Workers learn digits from real servers. Computing takes a fixed time, most of which they stand still, so that two cores
can hold all of them. Each model trains twice: undisturbed, and with answers that are late by many iterations, drawn
from the same seed for all models. The runs take turns; what a model loses is the median over the turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from torch import nn

    from paceline.launch.node import Post

WORKERS = 8
SERVERS, SHARDS = 2, 8  # shards of each server: one block of 16 may be missing at b=0.9
MODELS = ("bsp", f"psp(c={WORKERS - 1}, b=0.9)")
SLOW = "server *: 0.02% +1s"
PACE = 0.05  # seconds of an iteration
BATCH = 32


class SlowServerRow(Struct, frozen=True):
    """One model, with or without late answers.

    `lost` is what late answers add to an iteration of the same model, `over_bsp` what it takes more than `bsp` without
    any; both as a share. `accuracy` is on the test set, after the last iteration.
    """

    sync: str
    slow: str
    iterations: int
    ms_per_iteration: float
    lost: float
    over_bsp: float
    accuracy: float
    dropped: float  # of all gradients, how many came too late for their round


class Run(Struct, frozen=True):
    """One run: seconds per iteration, final accuracy, and the share of gradients that were dropped."""

    seconds: float
    accuracy: float
    dropped: float


def measure(repeats: int, iterations: int, slow: str = SLOW, models: Sequence[str] = MODELS) -> list[SlowServerRow]:
    """For each model the row without late answers and the row with them; the first is what others are compared with."""
    runs: dict[tuple[str, str], list[Run]] = {(sync, how): [] for sync in models for how in ("", slow)}
    for turn in range(repeats):
        for (sync, how), taken in runs.items():
            taken.append(run(sync, how, iterations, turn))
    return list(_rows(runs, iterations, models[0]))


def _rows(runs: dict[tuple[str, str], list[Run]], iterations: int, first: str) -> Iterator[SlowServerRow]:
    for (sync, how), taken in runs.items():
        more = [
            median(mine.seconds / other.seconds - 1 for mine, other in zip(taken, runs[beside, ""], strict=True))
            for beside in (sync, first)
        ]
        yield SlowServerRow(
            sync=sync,
            slow=how,
            iterations=iterations,
            ms_per_iteration=1e3 * median(one.seconds for one in taken),
            lost=more[0],
            over_bsp=more[1],
            accuracy=median(one.accuracy for one in taken),
            dropped=median(one.dropped for one in taken),
        )


def run(sync: str, slow: str, iterations: int, seed: int) -> Run:
    """Train once."""
    from paceline.launch.local import LocalCluster
    from paceline.nodes import Job
    from paceline.params import Optimizer
    from paceline.slowness import parse

    job = Job(
        workers=WORKERS,
        servers=SERVERS,
        shards_per_server=SHARDS,
        sync=sync,
        optimizer=Optimizer("momentum", {"lr": 0.05, "momentum": 0.9}),
        seed=seed,
    )
    slownesses = [parse(slow)] if slow else []
    with LocalCluster(job, f"{__name__}:train", {"iterations": iterations}, slow=slownesses) as cluster:
        ended = cluster.wait(None)
    found: list[dict[str, Any]] = []
    for one in ended.values():
        if one.error is not None:
            raise one.error
        if one.value is not None:
            found.append(one.value)
    gradients = sum(worker["gradients"] for worker in found)
    return Run(
        seconds=median(worker["seconds"] for worker in found) / iterations,
        accuracy=median(worker["accuracy"] for worker in found),
        dropped=sum(worker["dropped"] for worker in found) / gradients,
    )


def train(post: Post) -> dict[str, float]:
    """What every worker does, until it has come to the last iteration."""
    import torch
    from torch import nn

    from paceline.data import digits

    torch.manual_seed(post.job.seed)
    (x, y), test = digits.load()[0].tensors, digits.load()[1].tensors
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    named = dict(net.named_parameters())
    draw = torch.Generator().manual_seed(1 + post.number)
    steps = 0
    with post.worker({name: p.shape for name, p in named.items()}) as worker:
        worker.start(post.coordinator, {name: p.detach() for name, p in named.items()})
        start = 0
        for p in named.values():
            p.data = worker.parameters[start : start + p.numel()].view(p.shape)
            p.grad = worker.gradients[start : start + p.numel()].view(p.shape)
            start += p.numel()
        began = monotonic()
        while worker.iteration < post.arguments["iterations"]:
            begun = monotonic()
            chosen = torch.randint(len(y), (BATCH,), generator=draw)
            worker.gradients.zero_()
            nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()  # type: ignore[no-untyped-call]
            sleep(max(0.0, begun + PACE - monotonic()))
            worker.step()
            steps += 1
        seconds = monotonic() - began
        shards = len(worker.places)
        dropped = worker.dropped / shards
        return {"seconds": seconds, "accuracy": _accuracy(net, *test), "gradients": steps, "dropped": dropped}


def _accuracy(net: nn.Module, x: Any, y: Any) -> float:
    import torch

    with torch.no_grad():
        return float((net(x).argmax(1) == y).float().mean())
