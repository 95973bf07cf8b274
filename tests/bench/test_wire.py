"""The rivals do real rounds in real processes, and nothing of them is left, however it ends. Times are not judged."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest
from typer.testing import CliRunner, Result

from paceline.bench.rivals import GLOO, MEMCPY, RAY, STORE, TORCH_RPC, Group, Processes, RivalError
from paceline.bench.rivals.member import Place
from paceline.bench.rivals.reaper import members
from paceline.bench.wire import WireRow
from paceline.cli import app
from tests.effort import long

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="looks for processes in /proc")


def processes(mark: str) -> list[int]:
    """Those that have this in their environment, except this one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes() and path.parent.name != str(os.getpid()):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def all_gone(mark: str, seconds: float = 30.0) -> bool:
    """Wait for the end of every process with this mark."""
    deadline = monotonic() + seconds
    while left := processes(mark):
        try:
            watched = os.pidfd_open(left[0])
        except ProcessLookupError:
            continue
        ended, _, _ = select.select([watched], [], [], max(0.0, deadline - monotonic()))
        os.close(watched)
        if not ended:
            return False
    return True


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "wire", *arguments])


def test_a_cell_has_one_row_for_each_system() -> None:
    ran = bench("--workers", "2", "--megabytes", "1", "--system", "gloo", "--repeats", "1", "--json")
    assert ran.exit_code == 0, ran.output
    memcpy, gloo = [json.loads(line) for line in ran.stdout.splitlines()]
    for row in (memcpy, gloo):
        assert tuple(row) == WireRow.__struct_fields__
        assert (row["workers"], row["servers"], row["megabytes"]) == (2, 0, 1.0)
        assert row["gb_per_s"] > 0
        assert row["rtt_us"] > 0
    assert (memcpy["system"], memcpy["transport"], memcpy["of_memcpy"]) == ("memcpy", "memory", 1.0)
    assert (gloo["system"], gloo["transport"]) == ("gloo", "tcp")
    assert gloo["of_memcpy"] == pytest.approx(gloo["gb_per_s"] / memcpy["gb_per_s"])


def test_more_rounds_and_more_bytes_take_longer() -> None:
    """The best of five, and far apart, so that a busy machine does not matter."""

    def best(rounds: int, megabytes: float) -> float:
        with MEMCPY.start(2, 1, megabytes) as group:
            return min(group.rounds(rounds) for _ in range(5))

    assert best(2, 1.0) * 10 < best(400, 1.0)
    assert best(2, 1.0) * 3 < best(2, 100.0)


@long
@pytest.mark.parametrize("servers", [1, 2])
def test_torch_rpc_does_rounds(servers: int) -> None:
    with TORCH_RPC.start(2, servers, 0.1) as group:
        assert group.rounds(3) > 0


def test_a_store_alone_does_rounds() -> None:
    with STORE.start(3, 1, 0.1) as group:
        assert group.rounds(3) > 0


def test_ray_does_rounds() -> None:
    pytest.importorskip("ray")
    with RAY.start(2, 1, 0.1) as group:
        assert group.rounds(3) > 0


def test_a_round_that_does_not_sum_is_found() -> None:
    place = Place("worker", 0, workers=3, servers=1, elements=1, folder="")
    place.check(-3.0, -3.0)
    for smallest, largest in ((-3.0, 0.0), (-1.0, -1.0), (float("nan"), float("nan"))):
        with pytest.raises(AssertionError, match="after a round the parameters are"):
            place.check(smallest, largest)


# What cannot be measured is told by name.


def test_a_missing_package_is_told_with_how_to_get_it() -> None:
    ghost = Processes("ghost", "air", "ghost", package="no_such_package")
    why = ghost.unfit(2, 1)
    assert why is not None
    assert "no_such_package is not installed; pip install 'paceline[bench]'" in why


def test_what_a_system_cannot_do_is_told() -> None:
    assert GLOO.unfit(2, 3) is None
    assert TORCH_RPC.unfit(1, 3) is None
    ran = bench("--workers", "1", "--system", "gloo")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == "paceline: gloo is not measured with 1 workers: it needs at least 2 workers\n"
    ran = bench("--workers", "1", "--workers", "2", "--system", "torch_rpc", "--servers", "9")
    assert ran.stderr == "paceline: torch_rpc is not measured with 1, 2 workers: it has 8 servers at most\n"
    ran = bench("--system", "globo")
    assert ran.exit_code == 2
    assert "there is no system 'globo'; there are paceline, paceline_in_place, paceline_copied, store" in ran.stderr


# However it ends, nothing is left.


def group(module: str) -> Group:
    two = [("worker", 0), ("worker", 1)]
    return Group("other", module, workers=2, servers=0, elements=1, members=two)  # type: ignore[arg-type]


def test_a_process_that_does_not_start_is_named_with_its_story() -> None:
    with pytest.raises(RivalError, match=r"other: worker 0 has ended\n(.*\n)*.*No module named 'no_such_module'"):
        group("no_such_module").__enter__()


@needs_proc
def test_a_process_that_never_answers_is_named_and_killed_with_the_others() -> None:
    hanging = group("tests.bench.hanging")
    complaint = "other: worker 1 has not answered in time\nwaiting for ever"
    with pytest.raises(RivalError, match=complaint), hanging:
        assert hanging._reaper is not None
        session = hanging._reaper.session
        assert len(list(members(session))) == 2
        hanging.patience = 1.0
        hanging.rounds(1)
    assert list(members(session)) == []


WORKING = "group.rounds(10**9)"
IDLE = "sys.stdin.read()"


@needs_proc
@pytest.mark.parametrize(
    ("number", "doing"),
    [(signal.SIGINT, WORKING), (signal.SIGTERM, WORKING), (signal.SIGKILL, WORKING), (signal.SIGKILL, IDLE)],
    ids=["interrupted", "terminated", "killed", "killed while idle"],
)
def test_an_interrupted_benchmark_leaves_no_process(tmp_path: Path, number: int, doing: str) -> None:
    mark = uuid4().hex
    code = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a process in the background may ignore
        "from paceline.bench.rivals import GLOO\n"
        "with GLOO.start(2, 1, 0.1) as group:\n"
        "    print('up', flush=True)\n"
        f"    {doing}\n"
    )
    benchmark = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "MARK": mark, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with benchmark:
        assert benchmark.stdout is not None
        assert benchmark.stdout.readline() == b"up\n"
        assert len(processes(mark)) == 4  # with two workers and a reaper
        benchmark.send_signal(number)
        assert benchmark.wait(30) != 0
    assert all_gone(mark)
    assert list(tmp_path.iterdir()) == []
