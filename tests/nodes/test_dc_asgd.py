"""DC-ASGD on real nodes, told who does what in which order, against the paper's algorithms in one process."""

from __future__ import annotations

from random import Random
from threading import Barrier, Condition
from typing import Any

import pytest
import torch

from paceline.nodes import Job
from paceline.params import Optimizer
from tests.nodes import programs
from tests.nodes.runs import LONGEST, run
from tests.oracles.dc_asgd import ParameterServer

WORKERS = 3
LR = 0.5
EXPRESSIONS = {
    "dc_asgd(lam=4)": (4.0, None),
    "dc_asgd(kind=adaptive)": (2.0, 0.95),
    "dc_asgd(lam=1, kind=adaptive, m=0)": (1.0, 0.0),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Script:
    """Who does the next thing: a worker that has pushed pulls, and one that has pulled pushes. One at a time."""

    def __init__(self, turns: list[int]) -> None:
        self.turns = turns
        self._next = 0
        self._moved = Condition()
        self._there = Barrier(WORKERS, timeout=LONGEST)

    def begin(self) -> None:
        """All have their first parameters before anybody pushes."""
        self._there.wait()

    def wait_for(self, worker: int) -> int | None:
        """This worker's turn, or None when it has no more."""
        with self._moved:
            if worker not in self.turns[self._next :]:
                return None
            assert self._moved.wait_for(lambda: self.turns[self._next] == worker, LONGEST)
            return self._next

    def done(self) -> None:
        with self._moved:
            self._next += 1
            self._moved.notify_all()


def drawn(seed: int, turns: int = 40) -> list[int]:
    """Every worker an even number of times, and some of them far more often."""
    random = Random(seed)
    order = random.choices(range(WORKERS), weights=[6, 2, 1], k=turns)
    return order + [worker for worker in range(WORKERS) if order.count(worker) % 2]


def scripted(seat: Any) -> dict[str, Any]:
    """Do as the script says, and keep what every pull has brought, by turn."""
    script, model, pulled, pushing = seat.arguments["script"], programs.network(), {}, True
    with seat.worker(programs.shapes(model)) as worker:
        worker.start(seat.coordinator, programs.flat(model))
        script.begin()
        while (turn := script.wait_for(worker.number)) is not None:
            if pushing:
                programs.load(model, worker.parameters)
                worker.push(programs.gradient(model, worker.number, worker.iteration)).wait(LONGEST)
            else:
                worker.clock()
                pulled[turn] = worker.parameters.clone()
            pushing = not pushing
            script.done()
    return pulled


def ran(sync: str, order: list[int], momentum: float, servers: int) -> dict[int, torch.Tensor]:
    """What every pull has brought, by turn. All stay to the end, so that a gradient counts for one of all."""
    optimizer = Optimizer("sgd", {"lr": LR, "momentum": momentum})
    job = Job(workers=WORKERS, servers=servers, sync=sync, optimizer=optimizer)
    script = Script([*order, *range(WORKERS)])  # once more each, so that nobody leaves before the others are done
    pulled: dict[int, torch.Tensor] = {}
    for one in run("memory", job, scripted, {"script": script}):
        pulled |= one
    return pulled


def by_the_paper(order: list[int], strength: float, m: float | None, momentum: float) -> dict[int, torch.Tensor]:
    model = programs.network()
    server = ParameterServer(programs.flat(model), WORKERS, LR, strength, m, momentum)
    has = {worker: server.receive_pull_request(worker) for worker in range(WORKERS)}
    iteration, pushing = dict.fromkeys(range(WORKERS), 0), dict.fromkeys(range(WORKERS), True)
    pulled = {}
    for turn, worker in enumerate(order):
        if pushing[worker]:
            programs.load(model, has[worker])
            gradient = programs.gradient(model, worker, iteration[worker])
            server.receive_gradient(worker, torch.cat([part.reshape(-1) for part in gradient.values()]))
            iteration[worker] += 1
        else:
            has[worker] = pulled[turn] = server.receive_pull_request(worker)
        pushing[worker] = not pushing[worker]
    return pulled


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("sync", EXPRESSIONS)
def test_every_pull_brings_what_the_paper_s_server_would_send(sync: str, servers: int, momentum: float) -> None:
    order = drawn(servers + 10 * int(momentum > 0))
    expected = by_the_paper(order, *EXPRESSIONS[sync], momentum)
    pulled = ran(sync, order, momentum, servers)
    assert pulled.keys() == expected.keys()
    for turn, values in expected.items():
        torch.testing.assert_close(pulled[turn], values, rtol=1e-6, atol=1e-6, msg=f"turn {turn}")
    uncorrected = by_the_paper(order, 0.0, None, momentum)
    assert not torch.allclose(pulled[max(expected)], uncorrected[max(expected)], atol=1e-4)


def test_no_strength_is_asp() -> None:
    order = drawn(5)
    without, asp = (ran(sync, order, 0.9, 2) for sync in ("dc_asgd(lam=0)", "asp"))
    assert without.keys() == asp.keys()
    assert all(torch.equal(without[turn], asp[turn]) for turn in asp)
