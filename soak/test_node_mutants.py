"""Every bug planted in the nodes, or in the store below them, is caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soak.node_mutants import NODE_MUTANTS, NodeMutant
from soak.test_mutants import ROOT, TESTS_FAILED


@pytest.mark.parametrize("mutant", NODE_MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in NODE_MUTANTS])
def test_a_bug_planted_in_a_node_is_caught(mutant: NodeMutant, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    file = source / "paceline" / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.tests]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
