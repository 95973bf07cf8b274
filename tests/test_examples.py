"""The examples run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_plain_loop_fits_its_line_under_a_model_of_ones_choice() -> None:
    command = [sys.executable, "examples/plain_loop.py", "--workers", "3", "--sync", "ssp(s=2)", "--iterations", "120"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    errors = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(errors) == 3
    assert max(errors) < 0.05, done.stdout
