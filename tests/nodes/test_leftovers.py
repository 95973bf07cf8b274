"""What a run takes, and that it gives it all back, however it ends."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from paceline.launch.local import LocalCluster
from paceline.nodes import Job, PeerLost
from paceline.params import Optimizer
from tests.effort import cases

SOON = 30.0
MODEL = 60_000_000  # bytes


def belongings() -> dict[str, set[str]]:
    """What this process has of the system."""
    return {
        "descriptors": {f"{fd} {re.sub(r'[0-9]+', '', name)}" for fd, name in descriptors(os.getpid()).items()},
        "threads": {thread.name for thread in threading.enumerate()},
    }


def descriptors(pid: int) -> dict[str, str]:
    """What is behind the descriptors of a process that may end meanwhile."""
    found = {}
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # the one that lists the others is gone, too
                found[fd] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return found


def sockets(pids: list[int]) -> set[str]:
    """The inodes of these processes' sockets."""
    names = {name for pid in pids for name in descriptors(pid).values()}
    return {name.removeprefix("socket:[").removesuffix("]") for name in names if name.startswith("socket:")}


def all_sockets() -> set[str]:
    """The inodes of every socket of this machine that is open, connected or waited at."""
    tables = {"unix": 6, "tcp": 9, "tcp6": 9}
    return {
        line.split()[column]
        for table, column in tables.items()
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    }


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


def one_run(seed: int, kill: bool) -> set[str]:
    """A cluster of four workers and two servers that ends by itself, or after a random process of it was killed.

    Returns which sockets it had.
    """
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
        taken = sockets(pids)
        ended = cluster.wait(SOON)
    for one in ended.values():
        assert (one.error is None) == (not kill) or isinstance(one.error, PeerLost), (one.name, one.error, one.log)
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
    return taken


def test_nothing_is_left_after_many_runs_of_which_some_are_killed() -> None:
    one_run(0, kill=False)  # starts what is started once: the process that nodes are forked off
    before, sockets_before = belongings(), all_sockets()
    taken = set().union(*(one_run(seed, kill=seed % 5 == 4) for seed in range(cases(10)))) - sockets_before
    assert taken
    assert taken & all_sockets() == set()
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
