"""The bugs that `make soak` plants have a place to be planted in."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.mutants import MUTANTS
from soak.node_mutants import NODE_MUTANTS
from soak.wire_mutants import WIRE_MUTANTS

SOURCE = Path(__file__).parents[1] / "src" / "paceline"
PLACES = [
    *((mutant.name, SOURCE / "sync" / mutant.file, mutant.old) for mutant in MUTANTS),
    *((mutant.name, SOURCE / "wire" / mutant.file, mutant.old) for mutant in WIRE_MUTANTS),
    *((mutant.name, SOURCE / mutant.file, mutant.old) for mutant in NODE_MUTANTS),
]


@pytest.mark.parametrize(("file", "old"), [place[1:] for place in PLACES], ids=[place[0] for place in PLACES])
def test_a_planted_bug_has_its_place(file: Path, old: str) -> None:
    assert file.read_text().count(old) == 1
