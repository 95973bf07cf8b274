"""Every planted bug of the core is found by the simulator's faults, within as many seeds as `make test` runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soak.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]
FOUND = 1  # the exit code of `paceline faults` where a seed has found something
SEEDS = 1000


def run_seeds(source: Path, seeds: int = SEEDS) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline.cli", "faults", "--seeds", str(seeds)]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, timeout=900)


def test_the_seeds_see_the_copy(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    assert run_seeds(source, 2).returncode == 0
    marker = source / "paceline" / "sync" / "__init__.py"
    marker.write_text(marker.read_text() + "\nraise ImportError('this is the copy')\n")
    assert "this is the copy" in run_seeds(source, 2).stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in MUTANTS])
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    file = source / "paceline" / "sync" / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    result = run_seeds(source)
    assert result.returncode == FOUND, result.stdout[-2000:] + result.stderr[-2000:]
    assert "to see it again: paceline faults --seed " in result.stderr, result.stderr[-2000:]
