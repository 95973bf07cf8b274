"""Every bug planted in the nodes, or in the store below them, is caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.node_mutants import NODE_MUTANTS, NodeMutant
from soak.planting import TESTS_FAILED, plant, run_tests


@pytest.mark.parametrize("mutant", NODE_MUTANTS, ids=[mutant.name.replace(" ", "-") for mutant in NODE_MUTANTS])
def test_a_bug_planted_in_a_node_is_caught(mutant: NodeMutant, tmp_path: Path) -> None:
    result = run_tests(plant(mutant, tmp_path), mutant.tests)
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
