"""A worker's own interface: handles, overlap, and what it does not let its user do."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
import torch

from paceline.nodes import Job, Worker, WrongRequest
from paceline.params import Optimizer
from paceline.wire import MemoryNetwork, SocketNetwork
from tests.nodes import programs
from tests.nodes.runs import LONGEST, WIRES, on_threads, run


@pytest.mark.parametrize("wire", WIRES)
def test_a_shard_goes_on_while_the_push_of_another_is_still_to_come(wire: str) -> None:
    """Both workers have the new values of shard 0 before either has sent its gradient to shard 1."""
    for result in run(wire, Job(workers=2, servers=2, sync="bsp"), programs.overlapping, {"size": 1000}):
        assert result == {"before": [1, 0], "after": [1, 1], "outcome": ["applied", "applied"]}


@pytest.mark.parametrize("wire", WIRES)
def test_pushes_and_pulls_go_on_behind_the_callers_back(wire: str) -> None:
    arguments = {"size": 4_000_000}  # more than a socket takes at once
    for result in run(wire, Job(workers=2, servers=2, sync="bsp"), programs.computing, arguments):
        assert result == {"done": True, "value": 1.0 - 0.001}


@pytest.mark.parametrize("wire", ["memory", "tcp"])
def test_the_coordinators_barrier_changes_nothing_but_the_time(wire: str) -> None:
    optimizer = Optimizer("momentum", {"lr": 0.05})
    results = [
        run(
            wire,
            Job(workers=3, servers=2, optimizer=optimizer, deterministic=True, barrier=barrier),
            programs.train,
            {"steps": 20},
        )
        for barrier in (False, True)
    ]
    assert results[0][0]["hashes"] == results[1][0]["hashes"]


def test_what_a_worker_refuses() -> None:
    for result in run("memory", Job(workers=1), programs.misuse, {}):
        assert result["twice"].startswith("iteration 0 has asked already")
        assert "'bias' is missing" in result["missing"]
        assert "'other' is not in the model" in result["unknown"]
        assert "'bias' has the shape (4,)" in result["shape"]
        assert "torch.float64" in result["dtype"]
        assert "values of shape (3,)" in result["flat"]
        assert "took more than 0.01 s" in result["late"]


def test_a_worker_that_has_not_started_says_so() -> None:
    worker = Worker(Job(workers=1), MemoryNetwork(), {"values": (3,)})
    for call in (worker.push, worker.pull, worker.step, lambda: worker.change("asp")):
        with pytest.raises(WrongRequest, match="has not started"):
            call()
    worker.close()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"workers": 0}, "workers is 0"),
        ({"workers": 2, "servers": 0}, "servers is 0"),
        ({"workers": 2, "silence": 0.0}, "silence"),
        ({"workers": 2, "sync": "ssp(s=2)", "deterministic": True}, "deterministic"),
    ],
)
def test_jobs_that_cannot_be(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongRequest, match=says):
        Job(**settings)


def test_a_job_with_another_setting_has_another_digest() -> None:
    jobs = [Job(workers=2), Job(workers=3), Job(workers=2, seed=1), Job(workers=2, optimizer=Optimizer("adam"))]
    assert len({job.digest() for job in jobs}) == len(jobs)
    assert Job(workers=2).digest() == jobs[0].digest()


def test_what_cannot_be_read_in_place() -> None:
    with pytest.raises(WrongRequest, match="lars"):
        Worker(Job(workers=1, optimizer=Optimizer("lars")), MemoryNetwork(), {"values": (3,)}, in_place=True)
    (said,) = run("memory", Job(workers=1, servers=2), programs.flat_in_place)
    assert "2 shards" in said


def test_who_has_given_back_what_it_read_stops_nobody_however_long_it_computes() -> None:
    """Two workers have read each of a shard's two buffers in place and do not come back before the third is done."""
    first_step, both_given_back, all_steps = Event(), Event(), Event()

    def program(seat: Any) -> int:
        with seat.worker({"values": (30_000,)}, in_place=True) as worker:
            worker.start(seat.coordinator, torch.zeros(30_000))
            if seat.number == 2:
                worker.step()
                first_step.set()
                assert both_given_back.wait(LONGEST / 4)
                worker.push()
                worker.pull().wait(LONGEST / 4)
                worker.clock()
                all_steps.set()
            else:
                if seat.number == 1:
                    assert first_step.wait(LONGEST / 4)
                    worker.step()
                worker.give_back()
                if seat.number == 1:
                    both_given_back.set()
                assert all_steps.wait(LONGEST / 2)
            return int(worker.iteration)

    job = Job(workers=3, sync="asp")
    assert on_threads(job, program, {}, network=SocketNetwork(wire="shared-memory")) == [0, 1, 2]
