"""Every planted bug is caught by the tests of the core."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soak.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's exit code; a mutant that cannot even be imported gives another


def run_core_tests(source: Path) -> subprocess.CompletedProcess[str]:
    quick = [f"tests/sync/test_{what}.py" for what in ("shard", "progress", "one_plan", "equivalences")]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *quick,
        "tests/contract/test_every_model.py",
        "tests/sync",
    ]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)


def test_the_tests_see_the_copy(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    marker = source / "paceline" / "sync" / "__init__.py"
    marker.write_text(marker.read_text() + "\nraise ImportError('this is the copy')\n")
    assert "this is the copy" in run_core_tests(source).stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in MUTANTS])
def test_a_planted_bug_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    file = source / "paceline" / "sync" / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    result = run_core_tests(source)
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
