"""`paceline demo`: real workers, real data, and what it says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

COMMAND = [sys.executable, "-c", "from paceline.cli import main; main()", "demo"]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


def test_plain_bsp_and_a_better_model_learn_the_same() -> None:
    """Not how much faster: that the slow worker holds everyone up under the one, and nobody under the other."""
    ran = demo("--sync", "bsp", "--sync", "asp", "--target", "0.6", "--json")
    assert ran.returncode == 0, ran.stderr
    bsp, asp = json.loads(ran.stdout)
    for learnt in (bsp, asp):
        assert learnt["accuracy"][-1][1] >= 0.6
        assert all(right < 0.6 for _, right in learnt["accuracy"][:-1])
    assert shares(bsp)[0] > 0.5 > shares(asp)[0]
    assert asp["seconds"] < bsp["seconds"]


def shares(learnt: dict[str, Any]) -> list[float]:
    return [worker["waiting"] for worker in learnt["summary"]["workers"]]


def test_the_picture_and_the_table() -> None:
    ran = demo("--sync", "bsp", "--target", "0.3")
    assert ran.returncode == 0, ran.stderr
    assert "bsp: 30% of the test digits right after" in ran.stdout
    assert "waiting, for worker 3" in ran.stdout
    assert [line for line in ran.stdout.splitlines() if line.startswith("worker 0") and "·3·" in line]
    assert "seconds to 30%" in ran.stdout
    assert max(len(line) for line in ran.stdout.splitlines() if line.startswith("worker")) <= 100


def test_what_cannot_be_shown_is_told() -> None:
    ran = demo("--sync", "bps")
    assert ran.returncode == 2
    assert "did you mean" in ran.stderr
