"""What goes wrong in a run of real processes, and what the others make of it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from paceline.launch.local import Ended, LocalCluster
from paceline.nodes import Expelled, Job, NotFinite, PeerLost, WrongModel

SOON = 15.0  # seconds: many times what it takes, for a machine that is busy with other tests


@contextmanager
def under_way(
    job: Job, program: str, arguments: dict[str, object] | None = None, wire: str = "auto"
) -> Iterator[LocalCluster]:
    """A run in which every worker has said that it is well under way."""
    with LocalCluster(job, f"tests.nodes.programs:{program}", arguments, wire=wire) as cluster:  # type: ignore[arg-type]
        for number in range(job.workers):
            assert cluster.said(f"worker {number}", 60) == "under way"
        yield cluster


def story(ended: dict[str, Ended]) -> str:
    return "\n".join(f"{one.name}: {one.status} {one.error} {one.log}" for one in ended.values())


@pytest.mark.parametrize("wire", ["shared-memory", "tcp"])
@pytest.mark.parametrize("killed", ["server 1", "coordinator"])
def test_without_a_server_or_the_coordinator_everyone_ends_and_names_it(killed: str, wire: str) -> None:
    with under_way(Job(workers=3, servers=2), "endless", wire=wire) as cluster:
        cluster.kill(killed)
        ended = cluster.wait(SOON)
    for name, one in ended.items():
        if name != killed:
            assert isinstance(one.error, PeerLost), story(ended)
            assert killed in str(one.error), story(ended)
            assert one.status == 1, story(ended)


@pytest.mark.parametrize("sync", ["bsp", "ssp(s=1)", "elastic_bsp(R=3)"])
def test_the_others_go_on_without_a_killed_worker(sync: str) -> None:
    job = Job(workers=3, servers=2, sync=sync)
    with under_way(job, "some", {"steps": 400}) as cluster:
        cluster.kill("worker 2")
        ended = cluster.wait(60)
    for name in ("worker 0", "worker 1"):
        assert ended[name].status == 0, story(ended)
        assert ended[name].value >= 400
    assert ended["server 0"].status == ended["server 1"].status == ended["coordinator"].status == 0, story(ended)


def test_a_worker_that_stands_still_is_expelled_and_hears_of_it() -> None:
    with under_way(Job(workers=2, silence=1.0), "some", {"steps": 3000}) as cluster:
        os.kill(cluster.pid("worker 1"), signal.SIGSTOP)
        while cluster.said("worker 0", SOON) != "done":
            pass
        os.kill(cluster.pid("worker 1"), signal.SIGCONT)
        ended = cluster.wait(SOON)
    assert ended["worker 0"].status == 0, story(ended)
    assert isinstance(ended["worker 1"].error, Expelled | PeerLost), story(ended)
    assert ended["coordinator"].status == 0, story(ended)


def test_a_worker_that_comes_again_takes_part_again() -> None:
    with under_way(Job(workers=2, servers=2), "until_joined", {"name": "first"}) as cluster:
        cluster.kill("worker 1")
        cluster.start_worker(1, "worker 1 again")
        ended = cluster.wait(60)
    assert ended["worker 0"].status == 0, story(ended)
    again = ended["worker 1 again"]
    assert again.status == 0, story(ended)
    assert again.value["incarnation"] == 1
    assert again.value["first"] > 0, "it starts where the others are"


def test_a_worker_with_another_model_is_told_which_parameter_and_may_be_replaced() -> None:
    job = Job(workers=2)
    with LocalCluster(job, "tests.nodes.programs:of_odd_size", {"odd": [1]}) as cluster:
        assert cluster.said("worker 1", 60) == "refused"
        cluster.start_worker(1, "worker 1 mended", {"odd": []})
        ended = cluster.wait(60)
    assert isinstance(ended["worker 1"].error, WrongModel), story(ended)
    assert "'values' has the shape (7,), in the run it is (10,)" in str(ended["worker 1"].error)
    assert ended["worker 0"].status == ended["worker 1 mended"].status == 0, story(ended)


@pytest.mark.parametrize("sync", ["bsp", "asp"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_gradients_that_are_not_finite_are_refused_and_counted(sync: str, value: str) -> None:
    job = Job(workers=2, servers=2, sync=sync)
    with LocalCluster(job, "tests.nodes.programs:bad_gradient", {"value": value, "not_finite": "skip"}) as cluster:
        ended = cluster.wait(60)
    assert ended["worker 0"].value == {"refused": 1, "finite": True}, story(ended)
    assert ended["worker 1"].value == {"refused": 0, "finite": True}, story(ended)


def test_a_refused_gradient_raises_and_names_the_parameter() -> None:
    with LocalCluster(
        Job(workers=2), "tests.nodes.programs:bad_gradient", {"value": "nan", "not_finite": "raise"}
    ) as cluster:
        ended = cluster.wait(60)
    assert isinstance(ended["worker 0"].error, NotFinite), story(ended)
    assert "'second' has NaN or Inf" in str(ended["worker 0"].error)
    assert ended["worker 1"].status == 0, story(ended)


def test_hostile_bytes_do_not_disturb_a_run() -> None:
    random = Random(7)
    with under_way(Job(workers=2), "some", {"steps": 300}, wire="tcp") as cluster:
        address = cluster.address
        for size in (0, 1, 16, 1000, 100_000):
            with socket.create_connection((address.host, address.port), SOON) as hostile:
                hostile.settimeout(SOON)
                try:
                    hostile.sendall(random.randbytes(size))
                    hostile.shutdown(socket.SHUT_WR)
                    while hostile.recv(65536):
                        pass
                except (ConnectionError, BrokenPipeError):
                    pass
        ended = cluster.wait(60)
    assert all(one.status == 0 for one in ended.values()), story(ended)


def test_when_whoever_started_the_run_is_gone_it_ends() -> None:
    with under_way(Job(workers=2), "endless") as cluster:
        cluster.let_go()
        ended = cluster.wait(SOON)
    assert all("whoever started the run is gone" in str(one.error) for one in ended.values()), story(ended)
