"""BSP on real servers is single-process training: bit for bit, and within rounding of that on the joined batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from paceline.nodes import Job
from paceline.params import Optimizer
from tests.nodes import programs
from tests.nodes.runs import WIRES, run

STEPS = 50
OPTIMIZERS: dict[str, tuple[Optimizer, Any]] = {
    "sgd": (Optimizer("sgd", {"lr": 0.1}), lambda p: torch.optim.SGD(p, lr=0.1)),
    "momentum": (
        Optimizer("momentum", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    ),
    "adam": (Optimizer("adam", {"lr": 0.01}), lambda p: torch.optim.Adam(p, lr=0.01)),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the workers' processes have it: more threads add up a product in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def alone(make: Any, workers: int) -> list[str]:
    """One process: the gradients of all workers' batches, summed in order, and one step. The hash after each."""
    model = programs.network()
    optimizer = make(model.parameters())
    hashes = []
    for iteration in range(STEPS):
        total: dict[str, torch.Tensor] = {}
        for worker in range(workers):
            for name, gradient in programs.gradient(model, worker, iteration).items():
                total[name] = total[name] + gradient if name in total else gradient.clone()
        for name, parameter in model.named_parameters():
            parameter.grad = total[name] / workers
        optimizer.step()
        hashes.append(programs.digest(programs.flat(model)))
    return hashes


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("wire", WIRES)
def test_bsp_gives_the_bits_of_a_single_process(wire: str, name: str, servers: int) -> None:
    optimizer, make = OPTIMIZERS[name]
    job = Job(workers=3, servers=servers, optimizer=optimizer, deterministic=True)
    expected = alone(make, 3)
    for result in run(wire, job, programs.train, {"steps": STEPS}):
        assert result["hashes"] == expected


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_psp_that_waits_for_everyone_and_everything_gives_the_bits_of_bsp(name: str) -> None:
    """Its linear scaling, too: with all gradients in it, a round has the whole rate."""
    optimizer, make = OPTIMIZERS[name]
    job = Job(workers=3, servers=3, sync="psp(c=3, b=1.0)", optimizer=optimizer, deterministic=True)
    expected = alone(make, 3)
    for result in run("memory", job, programs.train, {"steps": STEPS}):
        assert result["hashes"] == expected


@pytest.mark.parametrize("wire", WIRES)
def test_bsp_equals_training_on_the_joined_batch(wire: str) -> None:
    optimizer, make = OPTIMIZERS["momentum"]
    results = run(wire, Job(workers=4, servers=2, optimizer=optimizer), programs.train, {"steps": STEPS})
    model = programs.network()
    torch_optimizer = make(model.parameters())
    for iteration in range(STEPS):
        torch_optimizer.zero_grad()
        batches = [programs.batch(worker, iteration) for worker in range(4)]
        inputs, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
        nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        torch_optimizer.step()
    for result in results:
        torch.testing.assert_close(torch.tensor(result["parameters"]), programs.flat(model), rtol=1e-4, atol=1e-5)


def lars_alone(lr: float, momentum: float, weight_decay: float, trust: float, workers: int) -> list[torch.Tensor]:
    """You et al., algorithm 1, on whole tensors in one process. The parameters after each step."""
    model = programs.network()
    velocity = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    after = []
    for iteration in range(STEPS):
        gradients = [programs.gradient(model, worker, iteration) for worker in range(workers)]
        gradients = [{name: gradient.clone() for name, gradient in one.items()} for one in gradients]
        with torch.no_grad():
            for name, weight in model.named_parameters():
                mean = sum((one[name] for one in gradients), torch.zeros_like(weight)) / workers
                local = trust * weight.norm() / (mean.norm() + weight_decay * weight.norm() + 1e-8)
                velocity[name] = momentum * velocity[name] + lr * local * (mean + weight_decay * weight)
                weight.sub_(velocity[name])
        after.append(programs.flat(model))
        model = _copy(model)
    return after


def _copy(model: nn.Module) -> nn.Module:
    """Gradients of one step are not those of the next."""
    fresh = programs.network()
    programs.load(fresh, programs.flat(model))
    return fresh


@pytest.mark.parametrize("sync", ["bsp", "asp"])
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("wire", WIRES)
def test_lars_sees_whole_tensors_where_they_are_cut(wire: str, servers: int, sync: str) -> None:
    settings = {"lr": 1.0, "momentum": 0.9, "weight_decay": 0.01, "trust": 0.01}
    workers = 3 if sync == "bsp" else 1  # one worker under asp does what it does under bsp, with another update rule
    job = Job(workers=workers, servers=servers, sync=sync, optimizer=Optimizer("lars", dict(settings)))
    expected = lars_alone(**settings, workers=workers)
    for result in run(wire, job, programs.train, {"steps": STEPS}):
        torch.testing.assert_close(torch.tensor(result["parameters"]), expected[-1], rtol=1e-3, atol=1e-5)
