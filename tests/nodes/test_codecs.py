"""Runs with a codec: what arrives is what one process makes of it, and what was not applied is not lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import sqrt
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch

from paceline.nodes import Job, Worker, WrongRequest
from paceline.nodes import messages as m
from paceline.nodes.encoding import Encoding
from paceline.params import Optimizer, Space, elastic
from paceline.params.codecs import codec_of
from paceline.wire import Limits, MemoryNetwork, SocketNetwork
from tests.nodes import programs
from tests.nodes.runs import on_threads, run
from tests.nodes.test_server import SIZE, SOON, RawWorker

STEPS = 12
RATE = 0.1
ONE = Optimizer("sgd", {"lr": 1.0})
Arrive = Callable[[int, torch.Tensor], torch.Tensor]  # a worker's gradient, as the servers get it


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the workers have it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def as_halves(_: int, gradient: torch.Tensor) -> torch.Tensor:
    return gradient.half().float()


def by_slices(expression: str, servers: int) -> Arrive:
    """Each worker has an encoder for each slice."""
    codec = codec_of(expression)
    assert codec is not None
    slices = elastic(Space(programs.shapes(programs.network())), range(servers)).slices
    encoders = {(worker, s): codec.encoder(s.size, torch.float32) for worker in range(3) for s in slices}

    def arrive(worker: int, gradient: torch.Tensor) -> torch.Tensor:
        arrived = torch.empty_like(gradient)
        for s in slices:
            encoded = torch.empty(codec.nbytes(s.size, 4), dtype=torch.uint8)
            encoders[worker, s].encode(gradient[s.start : s.stop].clone(), encoded)
            codec.decode(encoded, arrived[s.start : s.stop])
        return arrived

    return arrive


def alone(arrive: Arrive, workers: int) -> list[str]:
    """One process: the workers' gradients as they arrive, summed in order, and one step. The hash after each."""
    model = programs.network()
    hashes = []
    for iteration in range(STEPS):
        total = torch.zeros(0)
        for worker in range(workers):
            gradients = programs.gradient(model, worker, iteration)
            flat = torch.cat([gradients[name].reshape(-1) for name, _ in model.named_parameters()])
            arrived = arrive(worker, flat)
            total = total + arrived if worker else arrived
        programs.load(model, torch.add(programs.flat(model), total / workers, alpha=-RATE))
        hashes.append(programs.digest(programs.flat(model)))
    return hashes


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("codec", ["fp16", "bf16", "one_bit", "top_k(share=0.1, momentum=0.5)"])
def test_a_run_gives_the_bits_of_a_single_process_with_the_same_codec(codec: str, servers: int) -> None:
    optimizer = Optimizer("sgd", {"lr": RATE})
    job = Job(workers=3, servers=servers, optimizer=optimizer, deterministic=True, codec=codec)
    expected = alone(as_halves if codec == "fp16" else by_slices(codec, servers), 3)
    for result in run("memory", job, programs.train, {"steps": STEPS}):
        assert result["hashes"] == expected


@pytest.mark.parametrize(("sync", "codec"), [("bsp", "fp16"), ("ssp(s=2)", "top_k(share=1)")])
@pytest.mark.parametrize(
    ("wire", "size"), [("memory", 1000), ("shared-memory", 1000), ("shared-memory", 150_000), ("tcp", 150_000)]
)
def test_no_gradient_is_lost_or_mixed_with_another_on_any_wire(wire: str, sync: str, codec: str, size: int) -> None:
    """Of both sizes: those that go with their message, and those that go by reference where that can be."""
    network = MemoryNetwork() if wire == "memory" else SocketNetwork(wire=wire, limits=Limits())  # type: ignore[arg-type]
    job = Job(workers=3, servers=2, sync=sync, update="round", optimizer=ONE, codec=codec)
    for result in on_threads(job, programs.numbered, {"size": size, "steps": 8}, network=network):
        assert result["wrong"] == []
        assert result["compared"] > 0


def test_what_is_under_way_stays_as_it_is() -> None:
    gradients = torch.ones(1000)
    codec = codec_of("fp16")
    assert codec is not None
    encoding = Encoding(codec, [m.Place(0, 0, 301, 0), m.Place(1, 301, 1000, 0)], gradients)
    for shard, size in enumerate((301, 699)):
        encoding.encode(shard, 0)
        assert torch.frombuffer(encoding.send(shard), dtype=torch.float16).tolist() == [1.0] * size
    assert not encoding.free(0)
    encoding.taken(1)
    assert [encoding.free(0), encoding.free(1)] == [False, True]
    encoding.close()


def dropped(seat: Any) -> dict[str, Any]:
    """Worker 1 comes too late for the first round, and goes on alone."""
    with seat.worker({"values": (100,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(100))
        if seat.number == 0:
            assert seat.arguments["started"].wait(SOON)
            worker.step(torch.zeros(100))
            seat.arguments["closed"].set()
            return {}
        seat.arguments["started"].set()
        assert seat.arguments["closed"].wait(SOON)
        late = torch.arange(100.0) + 1
        push = worker.push(late)
        worker.clock()
        outcome, held_back = push.outcome[0], worker._lines.encoding.held_back()
        for _ in range(seat.arguments["pushes"]):
            worker.step(torch.zeros(100))
        return {
            "outcome": outcome,
            "dropped": worker.dropped,
            "held_back": held_back,
            "missing": (worker.parameters + late).abs().max().item(),
        }


@pytest.mark.parametrize(
    ("codec", "pushes", "rest"), [("top_k(share=1)", 1, 0.0), ("top_k(share=0.1)", 10, 0.0), ("one_bit", 200, 1.0)]
)
def test_what_came_too_late_goes_back_and_is_sent_again(codec: str, pushes: int, rest: float) -> None:
    job = Job(workers=2, sync="drop(n_t=1)", optimizer=ONE, codec=codec)
    result = run("memory", job, dropped, {"started": Event(), "closed": Event(), "pushes": pushes})[1]
    assert result["outcome"] == "dropped"
    assert result["dropped"] == 1
    assert result["held_back"] == [pytest.approx(float((torch.arange(100.0) + 1).norm()))]
    assert result["missing"] <= rest + 1e-3


def not_finite(seat: Any) -> dict[str, Any]:
    """One gradient has a NaN in it; the others are ones."""
    with seat.worker({"values": (1000,)}, not_finite="skip") as worker:
        worker.start(seat.coordinator, torch.zeros(1000))
        while worker.iteration < 10:
            worker.gradients.fill_(1.0)
            if worker.iteration == 4:
                worker.gradients[-1] = torch.nan
            worker.step()
        return {"refused": worker.refused, "values": worker.parameters.unique().tolist()}


@pytest.mark.parametrize("sync", ["bsp", "asp"])
@pytest.mark.parametrize("codec", ["fp16", "bf16", "one_bit", "top_k(share=1)"])
def test_a_gradient_that_is_not_finite_is_refused_and_spoils_nothing(codec: str, sync: str) -> None:
    job = Job(workers=1, sync=sync, optimizer=ONE, codec=codec)
    (result,) = run("memory", job, not_finite)
    assert result == {"refused": 1, "values": [-9.0]}


# A worker that does not keep to the rules.


def top_2(*places: int) -> memoryview:
    """What top_k makes of ones at these places."""
    ones, count, low = (
        np.ones(len(places), np.float32),
        np.array([len(places)], np.uint32),
        np.array(places, np.uint16),
    )
    return memoryview(ones.tobytes() + count.tobytes() + low.tobytes())


@pytest.fixture
def raw() -> Iterator[RawWorker]:
    worker = RawWorker(workers=2, codec="top_k(share=0.34)")
    yield worker
    worker.close()


def begun(raw: RawWorker) -> Any:
    channel = raw.connect(m.WorkerHello(0, os.getpid(), 0))
    channel.send(m.encode(m.Initial(0)), memoryview(bytes(SIZE * 4)))
    channel.send(m.encode(m.Pull(0, -1)))
    raw.expect(m.Parameters)
    return channel


def test_what_arrives_is_decoded(raw: RawWorker) -> None:
    channel = begun(raw)
    channel.send(m.encode(m.Push(0, 0, 0)), top_2(1, 5))
    channel.send(m.encode(m.Pull(0, 0)))
    raw.expect(m.Parameters, 2)
    assert torch.frombuffer(raw.values, dtype=torch.float32).tolist() == [0.0, -0.5, 0.0, 0.0, 0.0, -0.5]


@pytest.mark.parametrize(
    ("push", "payload", "says"),
    [
        (m.Push(0, 0, 0), memoryview(bytes(SIZE * 4)), "24 bytes"),
        (m.Push(0, 0, 0), top_2(1, 6), "below 6"),
        (m.Push(0, 0, 0, residual=float("nan")), top_2(1, 2), "holds back nan"),
        (m.Row(0, "exp_avg"), top_2(1, 2), "16 bytes"),
    ],
)
def test_bytes_that_are_no_gradient_end_that_connection_alone(
    raw: RawWorker, push: m.AnyMessage, payload: memoryview | None, says: str
) -> None:
    channel = begun(raw)
    channel.send(m.encode(push), payload)
    assert says in raw.expect_end() + " ".join(map(str, raw.heard))
    raw.closed = None
    other = raw.connect(m.WorkerHello(1, os.getpid(), 0))
    other.send(m.encode(m.Push(0, 0, 0)), top_2(0, 1))
    raw.expect(m.Answer)
    other.send(m.encode(m.Pull(0, 0)))
    raw.expect(m.Parameters, 2)
    assert torch.frombuffer(raw.values, dtype=torch.float32).tolist()[2:] == [0.0] * 4


def test_a_gradient_that_comes_before_the_last_was_used_does_not_overwrite_it() -> None:
    raw = RawWorker("bsp", workers=2, codec="top_k(share=0.34)")
    channels = [begun(raw), raw.connect(m.WorkerHello(1, os.getpid(), 0))]
    for channel in channels:
        channel.send(m.encode(m.Push(0, 0, 0)), top_2(0, 1))
        channel.send(m.encode(m.Push(0, 1, 1)), top_2(2, 3))
    channels[0].send(m.encode(m.Pull(0, 1)))
    raw.expect(m.Parameters, 2)
    raw.close()
    assert torch.frombuffer(raw.values, dtype=torch.float32).tolist() == [-1.0, -1.0, -1.0, -1.0, 0.0, 0.0]


def test_what_a_lost_worker_held_back_is_counted(raw: RawWorker) -> None:
    channel = begun(raw)
    for iteration, residual in enumerate((9.0, 2.5)):
        channel.send(m.encode(m.Push(0, iteration, iteration, residual=residual)), top_2(0, 1))
    raw.expect(m.Answer, 2)
    assert raw.server.lost_residual == {}
    channel.send(m.encode(m.Halt()))
    raw.expect_end()
    assert raw.server.lost_residual == {0: 2.5}


def residuals(seat: Any) -> list[float]:
    with seat.worker({"values": (1000,)}) as worker:
        worker.start(seat.coordinator, torch.zeros(1000))
        worker.step(torch.ones(1000))
        return list(worker._lines.encoding.held_back())


def test_the_norm_of_what_is_held_back_is_that_of_all_parts() -> None:
    """Of 1000 ones, 990 are held back."""
    for parts in run("memory", Job(workers=2, servers=2, optimizer=ONE, codec="top_k(share=0.01)"), residuals):
        assert sqrt(sum(part * part for part in parts)) == pytest.approx(sqrt(990))


# What cannot be.


def test_jobs_with_a_codec() -> None:
    with pytest.raises(WrongRequest, match="did you mean 'top_k'"):
        Job(workers=2, codec="topk")
    digests = {Job(workers=2, codec=codec).digest() for codec in ("none", "fp16", "top_k", "top_k(share=0.1)")}
    assert len(digests) == 4


def test_momentum_acts_once() -> None:
    job = Job(workers=1, codec="top_k(momentum=0.9)", optimizer=Optimizer("momentum"))
    with pytest.raises(WrongRequest, match="set one of them to 0"):
        Worker(job, MemoryNetwork(), {"values": (3,)})
    Worker(job, MemoryNetwork(), {"values": (3,)}, optimizer=ONE).close()


def with_lars(seat: Any) -> str:
    with seat.worker({"values": (1000,)}) as worker:
        worker.start(seat.coordinator, torch.ones(1000))
        worker.step(torch.ones(1000))
        try:
            worker.change("asp")
        except WrongRequest as error:
            return str(error)
        return ""


def test_lars_needs_rounds_where_there_is_a_codec() -> None:
    lars = Optimizer("lars")
    with pytest.raises(WrongRequest, match="lars with fp16 needs a model that sums rounds"):
        Worker(Job(workers=1, sync="asp", codec="fp16", optimizer=lars), MemoryNetwork(), {"values": (3,)})
    (said,) = run("memory", Job(workers=1, servers=2, codec="fp16", optimizer=lars), with_lars)
    assert "under asp a worker tells the norms" in said
