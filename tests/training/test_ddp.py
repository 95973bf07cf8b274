"""A script under `ddp` is trained by torch's own DDP: the same bits, and an end when one worker is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from paceline.cli import app
from paceline.launch.run import Measured, Reported, ScriptRun, Wrote
from paceline.launch.run_file import RunFile
from paceline.nodes import Job, PeerLost, ScriptFailed, StartFailed
from paceline.slowness import parse
from paceline.training.group import Group
from paceline.wire import Address
from tests.launch import scripts
from tests.training import twins

UNUSED = scripts.HEAD.replace("Linear(4, 2)", "Linear(4, 2); model.spare = torch.nn.Linear(2, 2)") + "step()\n"
REPORTS = scripts.HEAD + "paceline.report(accuracy=0.25)\nfor _ in range(5): step()\npaceline.report(accuracy=0.5)\n"


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_it_is_torch_s_own_ddp_bit_for_bit_and_one_process_within_rounding(tmp_path: Path) -> None:
    job = Job(workers=twins.WORKERS, sync="ddp")
    with ScriptRun(job, Path(twins.__file__), [str(tmp_path)], tmp_path / "run") as run:
        list(run.updates())
    assert run.error is None, run.error
    assert [worker.iterations for worker in run.summary().workers] == [twins.STEPS] * twins.WORKERS
    expected = twins.alone()
    first = torch.load(tmp_path / "0.pt", weights_only=True)[0]
    for rank in range(twins.WORKERS):
        ours, theirs, remembered = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, value in expected.items():
            assert torch.equal(ours[name], theirs[name]), (rank, name)
            assert torch.equal(ours[name], first[name]), (rank, name)
            torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-5)
        assert remembered[0]["momentum_buffer"].shape == (400, 9)


def test_slowness_is_of_what_was_computed_and_the_others_wait(tmp_path: Path) -> None:
    job, slow = Job(workers=2, sync="ddp"), [parse("worker 1: +100ms")]
    with ScriptRun(job, script(tmp_path, REPORTS), [], tmp_path / "run", slow=slow) as run:
        updates = list(run.updates())
    assert run.error is None, run.error
    fast, slowed = run.summary().workers
    assert slowed.computing_s > 5 * 0.1
    assert fast.waiting_s > 4 * 0.1 > fast.computing_s
    assert fast.sent == fast.received == slowed.sent > 0
    measured = [update for update in updates if isinstance(update, Measured) and update.worker == 0]
    assert [update.accuracy for update in measured] == [0.25, 0.5]
    assert measured[1].seconds - measured[0].seconds > 5 * 0.1


@pytest.mark.parametrize("steps", [1, 5])
def test_when_a_worker_is_killed_the_others_say_so_and_end(steps: int, tmp_path: Path) -> None:
    with ScriptRun(Job(workers=3, sync="ddp"), script(tmp_path, scripts.ENDLESS), [], tmp_path / "run") as run:
        for update in run.updates():
            if isinstance(update, Reported) and update.progress.steps >= steps and not run.lost:
                run._cluster.kill("worker 1")
    assert isinstance(run.error, PeerLost), run.error
    assert "another worker is gone" in str(run.error)
    assert run.lost == ["worker 1"]
    assert str(run.summary().error).startswith("killed, perhaps by the system for want of memory: worker 1; another ")


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with ScriptRun(Job(workers=2, sync="ddp"), script(tmp_path, scripts.ENDLESS), [], tmp_path / "run") as run:
        for update in run.updates():
            if isinstance(update, Wrote):
                run.end()
        ended = run._cluster.wait(timeout=60)
    assert run.error is None
    assert {name: type(one.error) for name, one in ended.items()} == dict.fromkeys(["worker 0", "worker 1"], PeerLost)
    assert any("whoever started the run is gone" in str(one.error) for one in ended.values())


def test_a_parameter_without_a_gradient_is_named(tmp_path: Path) -> None:
    with ScriptRun(Job(workers=2, sync="ddp"), script(tmp_path, UNUSED), [], tmp_path / "run") as run:
        list(run.updates())
    assert isinstance(run.error, ScriptFailed)
    assert "DDP needs one for each of them (without: 0.2, 0.3)" in str(run.error)


def test_a_worker_that_never_comes_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"worker 0 waited 0\.2 s for the other 1 of the run"):
        Group(Job(workers=2, sync="ddp", start_within=0.2), 0, tmp_path).start()


def test_what_needs_servers_is_refused_in_one_line(tmp_path: Path) -> None:
    RunFile(job=Job(workers=2, sync="ddp"), coordinator=Address()).write(tmp_path)
    for arguments, words in (
        (["sync", str(tmp_path), "asp"], "which has no servers"),
        (["serve", "--workers", "2", "--sync", "ddp"], "ddp has no servers"),
        (["run", "--sync", "ddp", "--deterministic", "no.py"], "deterministic sums need"),
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert words in result.stderr
        assert len(result.stderr.splitlines()) == 1
