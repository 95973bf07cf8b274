"""Every planted bug is caught by the tests of the core."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from soak.mutants import MUTANTS, Mutant
from soak.planting import TESTS_FAILED, copy, plant, run_tests, spoil

QUICK = [f"tests/sync/test_{what}.py" for what in ("shard", "progress", "one_plan", "equivalences")]


def run_core_tests(source: Path) -> subprocess.CompletedProcess[str]:
    return run_tests(source, *QUICK, "tests/contract/test_every_model.py", "tests/sync")


def test_the_tests_see_the_copy(tmp_path: Path) -> None:
    source = copy(tmp_path)
    spoil(source)
    assert "this is the copy" in run_core_tests(source).stdout


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in MUTANTS])
def test_a_planted_bug_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    result = run_core_tests(plant(mutant, tmp_path, "sync"))
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
