"""`paceline compare` as its users call it: real workers, real data, and what it says of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import paceline
from paceline.cli import app
from paceline.compare.decided import decided, waited
from paceline.observe.trace import ShardSetup, Trace
from paceline.sync import Pushed
from paceline.training import ReportError

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"
COMMAND = [sys.executable, "-c", "from paceline.cli import main; main()", "compare"]
INTERRUPTIBLE = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from paceline.cli import main; main()",
    "compare",
]
SILENT = """
import torch, paceline
opt = paceline.Optimizer(torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1))
print("seed", paceline.seed())
"""


def test_ddp_a_model_and_one_that_fails(tmp_path: Path) -> None:
    """All that is compared is in the document, and what went wrong with one is told without ending the others."""
    models = [
        "--sync",
        "ddp",
        "--sync",
        "asp",
        "--sync",
        "bsp",
        "--with",
        "bsp: --lr nonsense",
        "--sync",
        "esync + fp16",
    ]
    options = ["--workers", "2", "--slow", "worker 1: +100ms", "--target", "0.6", "--within", "60", "--json"]
    ran = subprocess.run(
        [*COMMAND, *models, *options, "--folder", str(tmp_path), str(DIGITS), "--epochs", "1000"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 1, ran.stderr
    document = json.loads(ran.stdout)
    assert [line[:6] for line in ran.stderr.splitlines()] == [f"{number} of 4" for number in (1, 2, 3, 4)]
    ddp, asp, bsp, esync = document["rows"]
    assert [row["sync"] for row in document["rows"]] == ["ddp", "asp", "bsp", "esync + fp16"]
    assert "left with status 2" in bsp["error"]
    for row in (ddp, asp):
        assert row["error"] is None
        assert row["accuracy"] >= 0.6 > row["curve"][0][1]
        assert row["curve"][-1][0] == row["seconds_to_target"]
        assert all(right < 0.6 for _, right in row["curve"][:-1])
        assert row["samples_per_s"] > 0 < row["bytes_per_s"]
        assert (row["seed"], len(row["workers"])) == (1, 2)
    assert (ddp["held_pulls"], ddp["staleness"]) == (None, None)
    assert (asp["held_pulls"], asp["staleness"] > 0) == (0, True)
    assert ddp["workers"][0]["iterations"] - ddp["workers"][1]["iterations"] in (-1, 0, 1)
    assert asp["workers"][0]["iterations"] > asp["workers"][1]["iterations"]
    assert esync["error"] is None
    fast = esync["workers"][0]
    assert fast["rounds"] < fast["iterations"]
    assert min(worker["blocked_s"] for worker in esync["workers"]) > 0
    assert max(worker["for_others_s"] for worker in esync["workers"]) > 0
    assert [model["blocking"] is not None for model in document["models"]] == [False, False, False, True]
    assert [model["encoded"] for model in document["models"]] == [None, None, None, 0.5]
    assert ddp["workers"][0]["computing"] < asp["workers"][0]["computing"]
    assert json.loads((tmp_path / "comparison.json").read_text()) == document
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "left with status 2" in (tmp_path / "comparison.html").read_text()


def test_of_what_is_interrupted_the_runs_that_have_ended_are_kept(tmp_path: Path) -> None:
    models = ["--sync", "asp", "--sync", "bsp", "--sync", "ssp(s=3)"]
    options = ["--workers", "1", "--target", "0.3", "--within", "100", "--with", "bsp: --lr 0", "--json"]
    process = subprocess.Popen(
        [*INTERRUPTIBLE, *models, *options, "--folder", str(tmp_path), str(DIGITS), "--epochs", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("1 of 3: asp")
        kept = json.loads((tmp_path / "comparison.json").read_text())
        process.send_signal(signal.SIGINT)  # under bsp nothing would ever be learnt
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    document = json.loads(said)
    assert kept == document
    assert (len(document["rows"]), document["planned"]) == (1, 3)
    assert document["rows"][0]["accuracy"] >= 0.3
    assert [model["runs"] for model in document["models"]] == [1, 0, 0]
    assert "Interrupted: 1 of 3 runs have ended." in (tmp_path / "comparison.html").read_text()


def test_a_script_that_measures_nothing_is_told_what_to_do_and_has_its_seed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SILENT)
    options = ["--sync", "asp", "--workers", "1", "--seconds", "5", "--folder", str(tmp_path / "out")]
    ran = subprocess.run([*COMMAND, *options, str(script)], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1, ran.stderr
    assert "failed: nothing was measured; let the script call paceline.report(accuracy=...)" in ran.stdout
    [folder] = (tmp_path / "out").glob("001-*")
    assert (folder / "worker-0.log").read_text() == "seed 1\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "0.8", str(DIGITS)], "there is nothing to compare"),
        (["--sync", "asp", str(DIGITS)], "a run has no end"),
        (["--sync", "spp(s=3)", "--target", "0.8", str(DIGITS)], "did you mean"),
        (["--sync", "asp", "--target", "0.8", "no_such.py"], "there is no script 'no_such.py'"),
        (["--sync", "asp", "--target", "80", str(DIGITS)], "the target is 80"),
        (["--sync", "asp", "--target", "0.8", "--slow", "worker 9: 5x", str(DIGITS)], "there is no worker 9"),
        (["--sync", "asp", "--target", "0.8", "--slow", "worker 1: fast", str(DIGITS)], "--slow"),
        (["--sync", "asp", "--target", "0.8", "--workers", "0", str(DIGITS)], "--workers 0"),
        (["--sync", "asp", "--target", "0.8", "--servers", "0", str(DIGITS)], "--servers is 0"),
        (["--sync", "asp", "--target", "0.8", "--grid", "lr", str(DIGITS)], "--grid 'lr'"),
        (["--sync", "asp", "--target", "0.8", "--with", "bsp: -v", str(DIGITS)], "bsp is not compared"),
    ],
)
def test_what_cannot_be_compared_is_told_in_one_line(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["compare", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_alone_a_report_is_nothing_and_the_seed_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_SEED", raising=False)
    paceline.report(accuracy=0.5)
    assert paceline.seed() == 0
    monkeypatch.setenv("PACELINE_SEED", "7")
    assert paceline.seed() == 7
    for accuracy in (95.0, -0.1, float("nan")):
        with pytest.raises(ReportError, match="from 0 to 1"):
            paceline.report(accuracy=accuracy)


def test_a_run_without_servers_has_decided_nothing(tmp_path: Path) -> None:
    assert decided(tmp_path) is None
    assert waited(tmp_path) == {}
    (tmp_path / "server-0.trace").write_bytes(b"nonsense")
    assert decided(tmp_path) is None
    assert waited(tmp_path) == {}


def test_a_worker_waits_for_others_until_the_last_push_of_the_round(tmp_path: Path) -> None:
    pushes = [(0, 0, 1.0), (1, 0, 1.5), (1, 1, 4.0), (0, 1, 4.25), (0, 2, 5.0), (1, 2, 8.0)]
    setup = ShardSetup("esync", workers=2)
    shard = setup.build()
    with Trace(tmp_path / "server-0.trace", [setup]) as trace:
        for worker, round_, now in pushes:
            event = Pushed(worker, round_, sequence=round_)
            trace.record(0, now, event, shard.handle(event, now))
    assert waited(tmp_path) == {0: 0.5, 1: 0.0}
