"""`paceline run`, `paceline sync` and `paceline serve` as their users call them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from typer.testing import CliRunner

from paceline.cli import app
from paceline.launch.cli import _print
from paceline.launch.node import Result
from paceline.launch.run import Reported, ScriptRun, Summary
from paceline.launch.run_file import RunFile
from paceline.nodes import Job, NodeError, NotFinite, ScriptFailed, WrongRequest
from paceline.nodes.operator import change
from paceline.observe import read
from paceline.observe.recorded import timeline
from paceline.sync import SetModel
from paceline.wire import SocketNetwork
from tests.launch import scripts

SOON = 120.0
MAIN = "from paceline.cli import main; main()"
COMMAND = [sys.executable, "-c", MAIN]
# What a process in the background inherits is that it must not mind Ctrl-C.
INTERRUPTIBLE = [
    sys.executable,
    "-c",
    f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {MAIN}",
]


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


def paceline(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=SOON, cwd=cwd)


def test_a_run_from_the_command_line(tmp_path: Path) -> None:
    ran = paceline("run", "--workers", "2", script(tmp_path, scripts.SHORT), "--its", "own", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    for rank in (0, 1):
        assert f"worker {rank}: done {rank} 2 ['--its', 'own']" in ran.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert {file.name for file in folder.iterdir()} >= {"run.json", "worker-0.log", "server-0.log", "server-0.trace"}
    assert (folder / "run.json").stat().st_mode & 0o077 == 0
    assert str(folder.relative_to(tmp_path)) in ran.stdout


def test_the_summary_for_programs(tmp_path: Path) -> None:
    options = ["--workers", "2", "--slow", "worker 1: +80ms", "--json", "--folder", str(tmp_path)]
    ran = CliRunner().invoke(app, ["run", *options, str(script(tmp_path, scripts.SHORT))])
    assert ran.exit_code == 0, ran.stderr
    summary: dict[str, Any] = json.loads(ran.stdout)
    assert summary["sync"] == "bsp"
    assert summary["iterations"] == 20
    fast, slowed = summary["workers"]
    assert slowed["computing_s"] > 10 * 0.08
    assert fast["waiting_s"] > 0.4
    assert fast["held_for"].get("1", 0) >= 5
    seen = timeline(read(tmp_path / "server-0.trace"))
    assert [lane.iterations for lane in seen.lanes] == [10, 10]
    assert seen.held_pulls >= 10
    for lane in seen.lanes:
        ends = [0.0, *(span.end for span in lane.spans)]
        assert [span.start for span in lane.spans] == ends[:-1]
    assert (1,) in {span.waiting_for for span in seen.lanes[0].spans}
    assert seen.lanes[1].computing > 2 * seen.lanes[0].computing


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (scripts.RAISES, "ValueError: the data is gone"),
        (scripts.LEAVES, "left with status 3"),
        (scripts.NOT_FINITE, "NaN or Inf"),
        (scripts.FORGETS, "without a paceline.Optimizer"),
        (scripts.TWICE, "put all parameters into one optimizer"),
        (scripts.CYCLES, "only lr can"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
    ],
)
def test_what_goes_wrong_in_a_script_is_what_the_user_sees(text: str, words: str, tmp_path: Path) -> None:
    arguments = ["run", "--workers", "2", "--folder", tmp_path / "run", script(tmp_path, text)]
    ran = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert ran.exit_code == 1
    assert words in ran.stderr
    assert "runpy" not in ran.stderr
    assert str(tmp_path / "run") in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no_such.py"], "there is no script 'no_such.py'"),
        (["--sync", "spp(s=3)", "script.py"], "did you mean"),
        (["--codec", "fp17", "script.py"], "did you mean 'fp16'"),
        (["--codec", "fp16", "--sync", "ddp", "script.py"], "under ddp none go there"),
        (["--codec", "fp16", "--sync", "esync(aggregate=all_reduce)", "script.py"], "none go there; leave it out"),
        (["--workers", "0", "script.py"], "--workers 0 cannot be started here"),
        (["--workers", "100000", "script.py"], "from 1 to 256"),
        (["--servers", "0", "script.py"], "servers is 0"),
        (["--slow", "worker 7: 5x", "script.py"], "there is no worker 7 in a run of 2"),
        (["--slow", "worker 1: fast", "script.py"], "--slow"),
        (["--deterministic", "--sync", "asp", "script.py"], "deterministic sums need"),
        (["--port", "65536", "script.py"], "--port is 65536; it is a number from 0"),
        (["--port", "4000", "--wire", "shared-memory", "script.py"], "--port has no meaning"),
    ],
)
def test_what_cannot_be_run_is_told_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, scripts.SHORT)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["run", *arguments])
    assert ran.exit_code == 2
    assert words in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [["run", "script.py"], ["serve", "--workers", "2"]])
def test_a_port_that_is_taken_is_told_in_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, scripts.SHORT)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = CliRunner().invoke(app, [command[0], "--port", str(port), *command[1:]])
    assert ran.exit_code == 2
    assert f"127.0.0.1:{port}: is taken by another process; choose another port" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_a_port_of_ones_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, scripts.SHORT)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ran = CliRunner().invoke(app, ["run", "--port", str(port), "--folder", "run", "script.py"])
    assert ran.exit_code == 0, ran.stderr
    assert RunFile.read(tmp_path / "run").coordinator.port == port


def test_ctrl_c_ends_all_processes(tmp_path: Path) -> None:
    command = [*INTERRUPTIBLE, "run", "--workers", "2", "--folder", str(tmp_path / "run")]
    process = subprocess.Popen(
        [*command, str(script(tmp_path, scripts.ENDLESS))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "begun" in line:
                break
        children = descendants(process.pid)
        assert len(children) >= 4
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate(timeout=SOON)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "iterations/s" in said, "what was done until then is summed up"
    deadline = monotonic() + SOON
    while [pid for pid in children if os.path.exists(f"/proc/{pid}")]:
        assert monotonic() < deadline
        os.sched_yield()


def descendants(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            child = int(path.parent.name)
            found += [child, *descendants(child)]
    return found


def test_the_model_is_changed_while_it_runs(tmp_path: Path) -> None:
    """From bsp to ssp and back, and on one shard alone; the traces show it."""
    job, end = Job(workers=2, servers=2), tmp_path / "end"
    changes: list[tuple[str, int | None]] = [("ssp(s=3)", None), ("bsp", None), ("asp", 1)]
    with ScriptRun(job, script(tmp_path, scripts.UNTIL_TOLD), [str(end)], tmp_path / "run") as run:
        for update in run.updates():
            if isinstance(update, Reported) and not end.exists():
                there = RunFile.read(run.folder)
                for sync, shard in changes:
                    change(there.job, SocketNetwork(), there.coordinator, sync, shard)
                with pytest.raises(WrongRequest, match="shard 9"):
                    change(there.job, SocketNetwork(), there.coordinator, "asp", 9)
                end.touch()
    assert run.error is None, run.error
    for server, expected in ((0, ["ssp(s=3)", "bsp"]), (1, ["ssp(s=3)", "bsp", "asp"])):
        events = [record.event for record in read(tmp_path / "run" / f"server-{server}.trace")]
        assert [event.model for event in events if isinstance(event, SetModel)] == expected


def test_sync_from_the_command_line(tmp_path: Path) -> None:
    ran = paceline("sync", tmp_path, "asp")
    assert ran.returncode == 2
    assert "there is no run at" in ran.stderr
    ran = paceline("sync", tmp_path, "aps")
    assert "did you mean" in ran.stderr


def test_a_failed_server_ends_the_run_and_is_named(tmp_path: Path) -> None:
    with ScriptRun(Job(workers=2), script(tmp_path, scripts.ENDLESS), [], tmp_path / "run") as run:
        for update in run.updates():
            if isinstance(update, Reported):
                run._cluster.kill("server 0")
    assert run.error is not None
    assert not isinstance(run.error, ScriptFailed)
    assert "server 0" in str(run.error)


@pytest.mark.parametrize("why", ["killed", "the run failed"])
def test_a_state_server_is_lost_if_the_run_goes_on_without_it(why: str, tmp_path: Path) -> None:
    """Not if it ends because the run does."""
    end, text = tmp_path / "end", scripts.UNTIL_TOLD if why == "killed" else scripts.DIVERGES
    with ScriptRun(Job(workers=2, sync="esync"), script(tmp_path, text), [str(end)], tmp_path / "run") as run:
        for update in run.updates():
            if isinstance(update, Reported) and why == "killed" and not end.exists():
                run._cluster.kill("state server")
                end.touch()
    if why == "killed":
        assert run.error is None, run.error
        assert run.lost == ["state server"]
    else:
        assert "NaN or Inf" in str(run.error)
        assert run.lost == []


@pytest.mark.parametrize(("error", "lost"), [(NotFinite("of worker 0"), []), (None, ["state server"])])
def test_a_state_server_that_fails_is_lost_unless_the_run_fails(
    error: NodeError | None, lost: list[str], tmp_path: Path
) -> None:
    """Also where the State Server is told of another worker's error than the run's user is."""
    run = ScriptRun(Job(workers=2, sync="esync"), script(tmp_path, scripts.ENDLESS), [], tmp_path / "run")
    run._heard_of_state_server(Result(kind="not finite", words="of worker 1"))
    run._heard_of_state_server(None)
    run.error = error
    assert list(run.updates()) == []  # nothing was started
    assert run.lost == lost


def test_workers_that_torchrun_starts(tmp_path: Path) -> None:
    path, folder = script(tmp_path, scripts.SHORT), tmp_path / "run"
    serving = subprocess.Popen(
        [*COMMAND, "serve", "--workers", "2", "--folder", str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert serving.stdout is not None
        name, _, value = serving.stdout.readline().strip().partition("=")
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(path)]
        ran = subprocess.run(
            torchrun, env={**os.environ, name: value}, capture_output=True, text=True, timeout=SOON, cwd=tmp_path
        )
        assert ran.returncode == 0, ran.stderr
        assert {line for line in ran.stdout.splitlines() if "done" in line} == {"done 0 2 []", "done 1 2 []"}
        assert serving.wait(SOON) == 0
    finally:
        serving.kill()
        serving.wait()
        if serving.stdout is not None:
            serving.stdout.close()


def test_a_state_server_that_was_lost_is_told_like_a_worker(capsys: pytest.CaptureFixture[str]) -> None:
    _print(Summary("run", "esync", 1.0, 0, 0.0, [], ["state server", "worker 1"], lost_residual={1: 0.5}))
    shown = capsys.readouterr().out
    assert "state server was lost; the others went on\n" in shown
    assert "worker 1 was lost; the others went on; gradients of norm 0.5 that it held back" in shown
    _print(Summary("run", "ddp", 1.0, 0, 0.0, [], ["worker 1"], "worker 1 was killed"))
    assert "worker 1 was lost\n" in capsys.readouterr().out
