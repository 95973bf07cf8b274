"""Two workers that share a GPU, or have none: the same run, and the same result within rounding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.launch.run import ScriptRun, Wrote
from paceline.nodes import Job

SCRIPT = Path(__file__).parent / "on_device.py"
ON_A_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")
DEVICES = ["cpu", pytest.param("cuda", marks=ON_A_GPU)]


def train(net: str, sync: str, steps: int, folder: Path, device: str) -> float:
    """The worse worker's accuracy; the parameters are in the folder."""
    job = Job(workers=2, servers=2, sync=sync, deterministic=sync == "bsp")
    with ScriptRun(job, SCRIPT, [net, str(steps), str(folder), device], folder / f"run-{device}") as run:
        lines = [update.line for update in run.updates() if isinstance(update, Wrote)]
    assert run.error is None, run.error
    return min(float(line.split()[1]) for line in lines if line.startswith("accuracy"))


@pytest.mark.parametrize("sync", ["bsp", "ssp(s=3)", "esync(steps=3)"])
@pytest.mark.parametrize("device", DEVICES)
def test_digits_are_learnt(device: str, sync: str, tmp_path: Path) -> None:
    assert train("digits", sync, 150, tmp_path, device) > 0.95


@ON_A_GPU
@pytest.mark.parametrize("sync", ["bsp", "ssp(s=3)"])
def test_resnet_18_is_learnt(sync: str, tmp_path: Path) -> None:
    assert train("resnet18", sync, 60, tmp_path, "cuda") > 0.5


@ON_A_GPU
@pytest.mark.parametrize(("net", "steps"), [("digits", 150), ("resnet18", 1)])
def test_a_gpu_ends_where_the_cpu_does(net: str, steps: int, tmp_path: Path) -> None:
    """After one step where batch normalization is, which doubles what rounding does at every step."""
    for device in ("cpu", "cuda"):
        train(net, "bsp", steps, tmp_path, device)
    for rank in range(2):
        cpu, gpu = (torch.load(tmp_path / f"{device}-{rank}.pt", weights_only=True) for device in ("cpu", "cuda"))
        for here, there in zip(cpu, gpu, strict=True):
            torch.testing.assert_close(there, here, rtol=1e-3, atol=1e-4)
