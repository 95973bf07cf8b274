"""Training steps of a real network, under one of the ways to keep workers together, or under none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from paceline import nets
from paceline.bench.rivals import gloo
from paceline.bench.rivals.member import PATIENCE, Place, Rounds
from paceline.bench.rivals.parameter_server import FOREVER, await_file, meet, nothing, serve
from paceline.bench.rivals.setup import Training
from paceline.launch import environment
from paceline.launch.run_file import RunFile
from paceline.nodes import Job
from paceline.training.optimizer import Optimizer
from paceline.training.session import Session
from paceline.wire import SocketNetwork

BATCH = 64
RATE = 0.01
SHAPES = {"cnn": (1, 28, 28), "mlp": (1, 28, 28), "resnet18": (3, 16, 16)}  # so that no step takes seconds on one core


@contextmanager
def work(place: Place) -> Iterator[Rounds]:
    training = Training.found()
    job = Job(workers=place.workers, servers=place.servers, silence=FOREVER, start_within=PATIENCE)
    if place.role == "server":
        serve(place, job, SocketNetwork())
        yield nothing
        return
    torch.manual_seed(1)
    model: nn.Module = getattr(nets, training.net)().to(training.device)
    torch.manual_seed(place.rank)
    inputs = torch.randn(BATCH, *SHAPES[training.net]).to(training.device)
    labels = torch.randint(10, (BATCH,)).to(training.device)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    if training.system == "ddp":
        gloo.join(place)
        model = DistributedDataParallel(model)
    elif training.system != "none":
        here = environment.Place(place.rank, place.workers, place.rank, place.folder, "paceline bench")
        session = Session(here, RunFile(job=job, coordinator=meet(place), wire="auto"))
        optimizer = Optimizer(optimizer, overlap=training.system == "paceline_overlap", place=session)

    def rounds(n: int) -> None:
        for _ in range(n):
            step(model, optimizer, inputs, labels)
        if training.device != "cpu":
            torch.cuda.synchronize()

    rounds(1)
    if training.system != "none":
        check_alike(model, place)
    yield rounds


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def check_alike(model: nn.Module, place: Place) -> None:
    """Have all workers the same parameters after a step, and not those they began with?"""
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).cpu()
    mine = sha256(flat.numpy().tobytes()).hexdigest()
    seen = Path(place.folder) / f"after-{place.rank}"
    seen.with_suffix(".part").write_text(mine)
    seen.with_suffix(".part").rename(seen)
    others = [await_file(Path(place.folder) / f"after-{rank}").read_text() for rank in range(place.workers)]
    if set(others) != {mine}:
        raise AssertionError("workers have different parameters after a step")
