"""Every bug planted in the wires is caught by their tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soak.mutants import Mutant
from soak.wire_mutants import WIRE_MUTANTS

ROOT = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's exit code; a mutant that cannot even be imported gives another
SECONDS = 600  # a mutant that hangs is caught too

TESTS = [
    f"tests/wire/test_{name}.py"
    for name in ("outbox", "segment", "handshake", "loop", "tcp", "shared_memory", "network")
]
TESTS += ["tests/contract/test_every_wire.py", "tests/wire/test_hostile.py", "tests/wire"]


@pytest.mark.parametrize("mutant", WIRE_MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in WIRE_MUTANTS])
def test_a_planted_bug_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    file = source / "paceline" / "wire" / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
