"""What a run takes, and that it gives it all back, however it ends."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from random import Random

import pytest

from paceline.launch import LocalCluster
from paceline.nodes import Job, PeerLost
from paceline.params import Optimizer
from tests.effort import cases

SOON = 30.0
MODEL = 60_000_000  # bytes


def belongings() -> dict[str, set[str]]:
    """What this process and its nodes have of the system: descriptors, threads, Unix sockets, shared segments."""
    fds = {f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}" for fd in os.listdir("/proc/self/fd") if _is_open(fd)}
    return {
        "descriptors": {re.sub(r"\d+", "", fd.split(" ", 1)[1]) + f" {fd.split()[0]}" for fd in fds},
        "threads": {thread.name for thread in threading.enumerate()},
        "sockets": {
            line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@paceline-" in line
        },
    }


def _is_open(fd: str) -> bool:
    """The one that lists the others is not."""
    return os.path.lexists(f"/proc/self/fd/{fd}")


def segments(pids: list[int]) -> dict[str, int]:
    """The shared segments that these processes have mapped, by inode, and their sizes."""
    found: dict[str, int] = {}
    for pid in pids:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if "memfd:paceline" in line:
                span, _, _, _, inode = line.split()[:5]
                start, stop = (int(end, 16) for end in span.split("-"))
                found[inode] = max(found.get(inode, 0), stop - start)
    return found


def one_run(seed: int, kill: bool) -> None:
    """A cluster of four workers and two servers that ends by itself, or after a random process of it was killed."""
    job = Job(workers=4, servers=2, sync="ssp(s=1)")
    wire = ("shared-memory", "tcp")[seed % 2]
    arguments = {"steps": 60 if not kill else 100_000, "size": 1000}
    with LocalCluster(job, "tests.nodes.programs:some", arguments, wire=wire) as cluster:  # type: ignore[arg-type]
        pids = [cluster.pid(name) for name in cluster.names]
        if kill:
            for number in range(4):
                cluster.said(f"worker {number}", SOON)
            victim = Random(seed).choice(cluster.names)
            cluster.kill(victim)
            if victim.startswith("worker"):
                cluster.let_go()  # the others go on without it; end them as Ctrl-C at the terminal does
        ended = cluster.wait(SOON)
    for one in ended.values():
        assert (one.error is None) == (not kill) or isinstance(one.error, PeerLost), (one.name, one.error, one.log)
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []


def test_nothing_is_left_after_many_runs_of_which_some_are_killed() -> None:
    one_run(0, kill=False)  # starts what is started once: the process that nodes are forked off
    before = belongings()
    for seed in range(cases(10)):
        one_run(seed, kill=seed % 5 == 4)
    assert belongings() == before


def memory(wire: str, optimizer: str, size: int) -> tuple[int, int]:
    """The private memory of the server in a run with three workers, and the segments of all nodes, in bytes."""
    job = Job(workers=3, optimizer=Optimizer(optimizer))
    with LocalCluster(job, "tests.nodes.programs:endless", {"size": size // 4}, wire=wire) as cluster:  # type: ignore[arg-type]
        for number in range(3):
            cluster.said(f"worker {number}", SOON)
        status = Path(f"/proc/{cluster.pid('server 0')}/status").read_text()
        private = int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024
        shared = segments([cluster.pid(name) for name in cluster.names if name != "coordinator"])
    return private, sum(shared.values())


@pytest.mark.parametrize("wire", ["shared-memory", "tcp"])
@pytest.mark.parametrize(("optimizer", "state"), [("momentum", 1), ("adam", 2)])
def test_memory_stays_within_what_is_promised(wire: str, optimizer: str, state: int) -> None:
    """Privately parameters, optimizer state and one working copy; shared, a model for each worker and two."""
    bare, _ = memory(wire, optimizer, 4000)
    private, shared = memory(wire, optimizer, MODEL)
    assert private - bare <= 1.25 * (1 + state + 1) * MODEL
    workers_own = 3 * MODEL if wire == "tcp" else 0  # what they send from; between hosts it is on theirs
    assert shared - workers_own <= (3 + 2) * MODEL + 1_000_000
