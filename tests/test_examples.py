"""The examples run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paceline.data import cifar10, fashion_mnist, text
from tests.data.here import here

ROOT = Path(__file__).parent.parent
ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}  # two wait for each other for ever on cores that tests share
TINY = ["--epochs", "1", "--limit", "64", "--batch-size", "16"]


def run(script: str, *options: str) -> list[str]:
    """The lines that an example prints."""
    done = ran(script, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def ran(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"examples/{script}.py", *options]
    return subprocess.run(command, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, timeout=120, check=False)


def test_the_plain_loop_fits_its_line_under_a_model_of_ones_choice() -> None:
    lines = run("plain_loop", "--workers", "3", "--sync", "ssp(s=2)", "--iterations", "120")
    errors = [float(line.split()[-1]) for line in lines]
    assert len(errors) == 3
    assert max(errors) < 0.05, lines


def test_digits_are_learnt_and_two_runs_are_the_same() -> None:
    lines = run("digits")
    assert lines[-1].startswith("test accuracy ")
    assert float(lines[-1].split()[-1]) > 0.95, lines
    assert run("digits", "--epochs", "2")[:2] == lines[:2]


def test_checkpoints_are_gone_on_from(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path)]
    assert run("checkpoints", *folder, "--iterations", "60")[0] == "from iteration 0"
    lines = run("checkpoints", *folder)
    assert lines[0] == "from iteration 50"
    assert float(lines[-1].split()[-1]) > 0.9, lines


@pytest.mark.parametrize(
    ("script", "net", "data"),
    [
        pytest.param(script, net, data, id=f"{script} {net}")
        for script, data, nets in (
            ("fashion_mnist", fashion_mnist, ("lenet",)),
            ("cifar10", cifar10, ("alexnet",)),
            ("language", text, ("",)),
        )
        for net in nets
    ],
)
def test_the_others_run_to_their_last_line(script: str, net: str, data: ModuleType) -> None:
    here(data)
    lines = run(script, *(["--net", net] if net else []), *TINY)
    assert " loss " in lines[0]
    what, value = lines[-1].rsplit(" ", 1)
    assert what == ("test perplexity" if script == "language" else "test accuracy")
    assert 0 <= float(value) < 200


def test_learning_rates_fall_to_0_or_to_a_thousandth() -> None:
    here(fashion_mnist)

    def losses(*options: str) -> list[float]:
        tiny = ["--net", "lenet", "--limit", "64", "--batch-size", "64", "--epochs", "3"]
        return [float(line.split()[-1]) for line in run("fashion_mnist", *tiny, *options) if " loss " in line]

    learning = losses("--lr", "0.1")
    assert learning[2] < learning[1] < learning[0]
    assert losses("--lr", "0.1", "--anneal", "1e-9") == [learning[0]] * 3
    assert losses("--lr", "100", "--anneal", "1e-9", "--curve", "exponential") == learning


@pytest.mark.parametrize("never", ["0", "nan", "soon"])
def test_a_learning_rate_cannot_fall_in_no_time(never: str) -> None:
    done = ran("fashion_mnist", "--anneal", never)
    assert done.returncode == 2
    assert never in done.stderr.splitlines()[-1]
