"""`paceline demo`: real workers, real data, and what it says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-c", "from paceline.cli import main; main()", "demo"]


def demo(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=cwd)


def test_plain_bsp_and_a_better_model_learn_the_same(tmp_path: Path) -> None:
    """Not how much faster: that the slow worker holds everyone up under the one, and nobody under the other."""
    ran = demo("--sync", "bsp", "--sync", "asp", "--target", "0.6", "--json", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    bsp, asp = json.loads(ran.stdout)["rows"]
    for learnt in (bsp, asp):
        assert learnt["curve"][-1][1] >= 0.6
        assert all(right < 0.6 for _, right in learnt["curve"][:-1])
    assert shares(bsp)[0] < 0.5 < shares(asp)[0]
    assert asp["seconds_to_target"] < bsp["seconds_to_target"]


def shares(learnt: dict[str, Any]) -> list[float]:
    return [worker["computing"] for worker in learnt["workers"]]


def test_the_picture_and_the_table(tmp_path: Path) -> None:
    ran = demo("--sync", "bsp", "--target", "0.3", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "1 of 1: bsp, seed 1: 0.3 after" in ran.stdout
    assert "waiting, for worker 3" in ran.stdout
    assert [line for line in ran.stdout.splitlines() if line.startswith("worker 0") and "·3·" in line]
    assert "to 0.3" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines() if line.startswith("worker")) <= 100
    [folder] = (tmp_path / "runs").iterdir()
    for name in ("comparison.png", "comparison.html"):
        assert f"{folder.relative_to(tmp_path) / name}" in ran.stdout
        assert (folder / name).exists()


def test_what_cannot_be_shown_is_told(tmp_path: Path) -> None:
    ran = demo("--sync", "bps", cwd=tmp_path)
    assert ran.returncode == 2
    assert "did you mean" in ran.stderr
