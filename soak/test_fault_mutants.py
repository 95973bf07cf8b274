"""Planted bugs of the core are found by the simulator's faults, in as many seeds as `make test` runs or as they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak.mutants import MUTANTS, Mutant
from soak.planting import copy, plant, run, spoil

FOUND = 1  # the exit code of `paceline faults` where a seed has found something
SHOWS = [mutant for mutant in MUTANTS if mutant.seeds]
FAULTS = ("paceline.cli", "faults", "--seeds")


def test_the_seeds_see_the_copy(tmp_path: Path) -> None:
    source = copy(tmp_path)
    assert run(source, *FAULTS, "2").returncode == 0
    spoil(source)
    assert "this is the copy" in run(source, *FAULTS, "2").stderr


@pytest.mark.parametrize("mutant", SHOWS, ids=[mutant.name.replace(" ", "-") for mutant in SHOWS])
def test_a_planted_bug_is_found(mutant: Mutant, tmp_path: Path) -> None:
    result = run(plant(mutant, tmp_path, "sync"), *FAULTS, str(mutant.seeds))
    assert result.returncode == FOUND, result.stdout[-2000:] + result.stderr[-2000:]
    assert "to see it again: paceline faults --seed " in result.stderr, result.stderr[-2000:]
