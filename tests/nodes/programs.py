"""What workers do in the tests: each function is called with the worker's seat, in its process or on its thread."""

from __future__ import annotations

from hashlib import sha256
from time import monotonic
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from paceline.nodes import NodeError, Snapshot, WrongModel, WrongRequest

BATCH = 8


def network() -> nn.Module:
    """Small, with tensors of uneven sizes, none of which is a multiple of a vector's width."""
    model = nn.Sequential(nn.Linear(19, 37), nn.Tanh(), nn.Linear(37, 11), nn.Tanh(), nn.Linear(11, 3))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def batch(worker: int, iteration: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1000 * worker + iteration)
    return torch.randn(BATCH, 19, generator=generator), torch.randn(BATCH, 3, generator=generator)


def gradient(model: nn.Module, worker: int, iteration: int) -> dict[str, Tensor]:
    """Of the loss on one worker's batch."""
    model.zero_grad()
    inputs, targets = batch(worker, iteration)
    nn.functional.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


def load(model: nn.Module, values: Tensor) -> None:
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(values[start : start + parameter.numel()].reshape(parameter.shape))
            start += parameter.numel()


def digest(values: Tensor) -> str:
    return sha256(values.numpy().tobytes()).hexdigest()


def train(seat: Any) -> dict[str, Any]:
    """Train for some steps; the hash of the parameters after each, and the last ones themselves."""
    model = network()
    hashes = []
    with seat.worker(shapes(model)) as worker:
        worker.start(seat.coordinator, flat(model))
        while worker.iteration < seat.arguments["steps"]:
            load(model, worker.parameters)
            worker.push(gradient(model, worker.number, worker.iteration))
            worker.clock()
            hashes.append(digest(worker.parameters))
        return {"number": worker.number, "hashes": hashes, "parameters": worker.parameters.tolist()}


def snapshots(seat: Any) -> list[Any]:
    """Train, and have worker 0 take a snapshot on the way that it looks at only in the end.

    With `again`, all go on from such a snapshot: the one that a first run of theirs has left in a file.
    """
    model = network()
    taking = None
    with seat.worker(shapes(model)) as worker:
        again = seat.arguments.get("again")
        worker.start(seat.coordinator, flat(model) if again is None else read_snapshot(again))
        begun = worker.iteration
        while worker.iteration < seat.arguments["steps"]:
            load(model, worker.parameters)
            worker.step(gradient(model, worker.number, worker.iteration))
            if worker.iteration == seat.arguments["at"] and worker.number == 0:
                taking = worker.snapshot()
        if taking is not None:
            write_snapshot(taking.finish(), seat.arguments["file"])
        return [begun, worker.iteration, digest(worker.parameters)]


def write_snapshot(taken: Snapshot, file: str) -> None:
    numbers = torch.tensor([taken.clock, taken.steps])
    save_file({"values": taken.values, "numbers": numbers, **taken.rows}, file)  # type: ignore[dict-item]


def read_snapshot(file: str) -> Snapshot:
    rows = load_file(file)
    values, numbers = rows.pop("values"), rows.pop("numbers").tolist()
    return Snapshot(values, rows, {}, *numbers)


def constant_snapshots(seat: Any) -> int:
    """Push as `constant` does, take snapshots meanwhile, and count those that mix two versions of a shard."""
    size, mixed, taking = seat.arguments["size"], 0, None
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(size))
        while worker.iteration < seat.arguments["steps"]:
            worker.gradients.fill_(1.0 + worker.number + 0.37 * worker.iteration)
            worker.step()
            if worker.number == 0:
                if taking is not None:
                    values = taking.finish().values
                    for place in worker.places:
                        part = values[place.start : place.stop]
                        mixed += bool((part != part[0]).any())
                taking = worker.snapshot()
        if taking is not None:
            taking.finish()
        return mixed


def constant(seat: Any) -> dict[str, Any]:
    """Push gradients that are the same number everywhere, as fast as it goes.

    Every version of a slice is then one number everywhere too, and a mix of two versions shows.
    """
    size, steps, in_place = seat.arguments["size"], seat.arguments["steps"], seat.arguments.get("in_place", False)
    mixed = changed = 0
    with seat.worker({"values": (size,)}, in_place=in_place) as worker:
        worker.start(seat.coordinator, torch.zeros(size))
        while worker.iteration < steps:
            before = [float(part[0]) for part in worker.parts]
            worker.gradients.fill_(1.0 + worker.number + 0.37 * worker.iteration)
            for part, value in zip(worker.parts, before, strict=True):  # with all the time that others had since
                changed += float(part[0]) != value
                mixed += bool((part != part[0]).any())
            worker.push(answer=False)
            worker.clock()
        own = [part.data_ptr() == worker._replica._own[shard].data_ptr() for shard, part in enumerate(worker.parts)]
        return {"mixed": mixed, "changed": changed, "iteration": worker.iteration, "own": own}


def uneven(seat: Any) -> dict[str, Any]:
    """Computes longer the higher its number is. Changes the model on the way where it is told to."""
    size, steps, changes = seat.arguments["size"], seat.arguments["steps"], seat.arguments.get("changes", {})
    work = torch.randn(40 + 30 * seat.number, 40)
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.ones(size))
        while worker.iteration < steps:
            for _ in range(1 + worker.number * 3):
                torch.mm(work, work.T)
            worker.gradients.copy_(worker.parameters).mul_(0.1)
            worker.push(answer=False)
            if worker.number == 0 and str(worker.iteration) in changes:
                worker.change(*changes[str(worker.iteration)])
            worker.clock()
        return {"iteration": worker.iteration, "dropped": worker.dropped}


def endless(seat: Any) -> None:
    """Train until something ends it; it says when it is well under way."""
    size = seat.arguments.get("size", 1000)
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.ones(size))
        while True:
            worker.gradients.fill_(0.001)
            worker.step()
            if worker.iteration == 3:
                seat.say("under way")


def some(seat: Any) -> int:
    """As many steps as it is told, however many of the others are still there."""
    with seat.worker({"values": (1000,)}) as worker:
        worker.start(seat.coordinator, torch.ones(1000))
        while worker.iteration < seat.arguments["steps"]:
            worker.gradients.fill_(0.001)
            worker.push(answer=False)
            worker.clock()
            if worker.iteration == 3:
                seat.say("under way")
        seat.say("done")
        return int(worker.iteration)


def local_rounds(seat: Any) -> dict[str, Any]:
    """Rounds of local iterations, each the longer the higher the worker's number is; how many there were in each.

    It is `rounds` of them, or with `lost` as many after the State Server has gone. A worker is under way after its
    third, and the first one, which is the fastest, not before some round gave it more than one iteration. Every
    iteration takes the parameters one further, so that these show how many there were.
    """
    rounds, steps = seat.arguments["rounds"], []
    work = torch.randn(60, 60)
    with seat.local_worker({"values": (10,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(10))
        done: list[int] = []
        last = None if seat.arguments.get("lost") else rounds
        quiet = not seat.arguments.get("says", True)
        while last is None or worker.iteration < last:
            done.clear()
            worker.begin_round(lambda: worker.gradients.fill_(-float(len(done))))
            over = False
            while not over:
                for _ in range(20 + 200 * worker.number):
                    torch.mm(work, work)
                over = worker.local_step(lambda: done.append(worker.iteration))
            steps.append(len(done))
            worker.end_round()
            if not quiet and len(steps) >= 3 and (worker.number or max(steps) > 1):
                seat.say("under way")
                quiet = True
            if last is None and worker.rounds.alone:
                last = worker.iteration + rounds
        return {"steps": steps, "parameters": worker.parameters.tolist()}


def until_joined(seat: Any) -> dict[str, Any]:
    """Train until a second life of some worker has taken part for a while, and has said so in the parameters."""
    with seat.worker({"values": (100,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(100))
        first = worker.iteration
        while worker.parameters.abs().max() < 10.0:
            worker.gradients.fill_(-1000.0 if worker.incarnation else 0.0)
            worker.push(answer=False)
            worker.clock()
            if worker.iteration == 3:
                seat.say("under way")
        return {"incarnation": worker.incarnation, "first": first}


def of_odd_size(seat: Any) -> int:
    """Some workers have a model of another size."""
    odd = seat.number in seat.arguments["odd"]
    size = 7 if odd else 10
    with seat.worker({"values": (size,)}) as worker:
        try:
            worker.start(seat.coordinator, torch.zeros(size))
        except WrongModel:
            seat.say("refused")
            raise
        worker.push()
        return int(worker.clock())


def bad_gradient(seat: Any) -> dict[str, Any]:
    """Worker 0 has one gradient that is not finite, in the last element of the last tensor."""
    shapes = {"first": (300,), "second": (200,)}
    with seat.worker(shapes, not_finite=seat.arguments["not_finite"]) as worker:
        worker.start(seat.coordinator, torch.ones(500))
        while worker.iteration < 10:
            worker.gradients.fill_(0.1)
            if worker.number == 0 and worker.iteration == 4:
                worker.gradients[-1] = float(seat.arguments["value"])
            worker.push(answer=False)
            worker.clock()
        return {"refused": worker.refused, "finite": bool(torch.isfinite(worker.parameters).all())}


def overlapping(seat: Any) -> dict[str, Any]:
    """Push to shard 0, go on only when its new values are here, and then push to shard 1."""
    size = seat.arguments["size"]
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.ones(size))
        worker.gradients.fill_(1.0)
        first = worker.push(shards=[0])
        worker.pull()
        worker.wait(lambda: worker.versions[0] == 1, 60, "shard 0")
        before = [worker.versions[0], worker.versions[1]]
        second = worker.push(shards=[1])
        worker.clock()
        second.wait(60)
        after = [worker.versions[0], worker.versions[1]]
        return {"before": before, "after": after, "outcome": [first.outcome[0], second.outcome[1]]}


def computing(seat: Any) -> dict[str, Any]:
    """Push and pull, and then compute until both are done, without a look at the worker's methods."""
    size = seat.arguments["size"]
    work = torch.randn(100, 100)
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.ones(size))
        worker.gradients.fill_(1.0)
        push, pull = worker.push(), worker.pull()
        deadline = monotonic() + 60
        while not (push.done and pull.done) and monotonic() < deadline:
            work = torch.tanh(work @ work)
        done = push.done and pull.done
        worker.clock()
        return {"done": done, "value": round(float(worker.parameters[-1]), 6)}


def misuse(seat: Any) -> dict[str, str]:
    """What goes wrong when, in words."""
    said = {}

    def wrong(name: str, call: Any) -> None:
        try:
            call()
        except NodeError as error:
            said[name] = str(error)

    bias, weight = torch.zeros(4), torch.zeros(2, 3)
    with seat.worker({"weight": (2, 3), "bias": (3,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(9))
        wrong("missing", lambda: worker.push({"weight": weight}))
        wrong("unknown", lambda: worker.push({"weight": weight, "bias": bias[:3], "other": bias}))
        wrong("shape", lambda: worker.push({"weight": weight, "bias": bias}))
        wrong("dtype", lambda: worker.push({"weight": weight.double(), "bias": bias[:3]}))
        wrong("flat", lambda: worker.push(torch.zeros(3)))
        pull = worker.pull()
        wrong("twice", worker.pull)
        wrong("late", lambda: pull.wait(0.01))
        worker.push()
        worker.clock()
    return said


def counted(seat: Any) -> dict[str, Any]:
    """Push ones, with a rate of one, and compare the parameters of every pull with its version.

    Each update takes `seat.arguments["step"]` off. Workers leave late enough for all compared updates to have the
    gradients of all of them.
    """
    size, steps, step = seat.arguments["size"], seat.arguments["steps"], seat.arguments["step"]
    wrong = []
    compared = 0
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(size))
        last = steps * seat.job.workers if step < 1 else steps
        while min(worker.versions.values()) < last:
            worker.gradients.fill_(1.0)
            worker.step()
            for place in worker.places:
                part, version = worker.parameters[place.start : place.stop], worker.versions[place.shard]
                if version <= last:
                    compared += 1
                    if not (part == -step * version).all():
                        wrong.append((worker.number, place.shard, version, float(part[0])))
        return {"wrong": wrong, "compared": compared}


def numbered(seat: Any) -> dict[str, Any]:
    """Push the number of the round, with a rate of one, and compare the parameters of every pull with its version.

    For the update rule `round`: a gradient that is summed into another round than its own shows.
    """
    size, steps = seat.arguments["size"], seat.arguments["steps"]
    wrong = []
    compared = 0
    with seat.worker({"values": (size,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(size))
        while min(worker.versions.values()) < steps:
            worker.writable()
            worker.gradients.fill_(worker.iteration + 1.0)
            worker.step()
            for place in worker.places:
                part, version = worker.parameters[place.start : place.stop], worker.versions[place.shard]
                if version <= steps:
                    compared += 1
                    if not (part == -version * (version + 1) / 2).all():
                        wrong.append((worker.number, place.shard, version, float(part[0])))
        return {"wrong": wrong, "compared": compared}


def flat_in_place(seat: Any) -> str:
    """Ask for one flat tensor where there are several shards."""
    with seat.worker({"values": (10,)}, in_place=True) as worker:
        worker.start(seat.coordinator, torch.zeros(10))
        try:
            return str(worker.parameters)
        except WrongRequest as error:
            return str(error)
