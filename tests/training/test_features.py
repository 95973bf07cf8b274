"""Everything that torch's optimizers work with works with Paceline's, and gives what a single process gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paceline.launch.run import ScriptRun
from paceline.nodes import Job
from tests.training.features import STEPS, train

SCRIPT = Path(__file__).parent / "features.py"
FEATURES = ["plain", "schedule", "clip", "accumulate", "autocast", "scaler", "compile", "groups", "names", "sparse"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def unwrapped(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    return optimizer


def check(folder: Path, feature: str, ranks: range) -> None:
    expected = train(feature, unwrapped)
    for rank in ranks:
        state = torch.load(folder / f"{rank}.pt", weights_only=True)
        assert state.keys() == expected.keys()
        for name, value in expected.items():
            if feature == "sparse":  # torch adds a row's gradients to it one by one, and servers their sum
                torch.testing.assert_close(state[name], value)
            else:
                assert torch.equal(state[name], value), (rank, name)


@pytest.mark.parametrize(
    "feature", [*FEATURES, "overlap plain", "overlap accumulate", "overlap groups", "overlap sparse"]
)
@pytest.mark.parametrize(("workers", "servers"), [(2, 3)])
def test_a_run_ends_where_a_single_process_does(feature: str, workers: int, servers: int, tmp_path: Path) -> None:
    job = Job(workers=workers, servers=servers, deterministic=True)
    with ScriptRun(job, SCRIPT, [feature, str(tmp_path)], tmp_path / "run") as run:
        written = list(run.updates())
    assert run.error is None, run.error
    assert written
    assert all(worker.iterations == STEPS or feature == "scaler" for worker in run.summary().workers)
    check(tmp_path, feature.removeprefix("overlap "), range(workers))


def test_without_a_launcher_the_script_trains_alone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, SCRIPT, "schedule", tmp_path], check=True, timeout=120)
    check(tmp_path, "schedule", range(1))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")
@pytest.mark.parametrize("feature", ["plain", "overlap plain", "overlap accumulate"])
def test_on_a_gpu_it_ends_there_within_rounding(feature: str, tmp_path: Path) -> None:
    job = Job(workers=2, servers=3, deterministic=True)
    with ScriptRun(job, SCRIPT, [feature, str(tmp_path), "cuda"], tmp_path / "run") as run:
        list(run.updates())
    assert run.error is None, run.error
    expected = train(feature.removeprefix("overlap "), unwrapped)
    for rank in range(2):
        state = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for name, value in expected.items():
            torch.testing.assert_close(state[name], value, rtol=1e-3, atol=1e-4)
