"""Every bug planted in the wires is caught by their tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from soak.mutants import Mutant
from soak.planting import TESTS_FAILED, plant, run_tests
from soak.wire_mutants import WIRE_MUTANTS

SECONDS = 600  # a mutant that hangs is caught too

TESTS = [
    f"tests/wire/test_{name}.py"
    for name in ("outbox", "segment", "handshake", "loop", "tcp", "shared_memory", "network", "tls")
]
TESTS += ["tests/contract/test_every_wire.py", "tests/wire/test_hostile.py", "tests/wire"]


@pytest.mark.parametrize("mutant", WIRE_MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in WIRE_MUTANTS])
def test_a_planted_bug_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    try:
        result = run_tests(plant(mutant, tmp_path, "wire"), *TESTS, seconds=SECONDS)
    except subprocess.TimeoutExpired:
        return
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
