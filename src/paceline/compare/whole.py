"""A whole comparison: first the grid, if there is one, then all models in turn."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from msgspec import Struct

from paceline.compare.one import Watch, attempt
from paceline.compare.outcome import Outcome, Standing, best, standings
from paceline.compare.plan import Comparison, Turn, trials, turns


class Viewer(Protocol):
    """Who is told how far it is."""

    def starts(self, number: int, total: int, turn: Turn) -> Watch: ...
    def ended(self, outcome: Outcome) -> None: ...


class Report(Struct, frozen=True):
    """All of it: `rows` has one for each model and seed, `tried` those by which values of the grid were chosen."""

    command: str
    comparison: Comparison
    versions: dict[str, str]
    chosen: dict[str, str]
    models: list[Standing]
    rows: list[Outcome]
    tried: list[Outcome]

    @property
    def failed(self) -> list[Outcome]:
        return [row for row in (*self.tried, *self.rows) if row.error is not None]

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))


def compare(comparison: Comparison, folder: Path, view: Viewer) -> Report:
    """One run after the other, each in a folder of its own."""
    first = trials(comparison)
    total = len(first) + len(comparison.models) * comparison.seeds
    tried = _all(comparison, first, 0, total, folder, view)
    chosen = best(tried)
    rows = _all(comparison, list(turns(comparison, chosen)), len(first), total, folder, view)
    models = standings(rows, comparison.models, comparison.baseline)
    return Report(comparison.command(), comparison, versions(), chosen, models, rows, tried)


def _all(
    comparison: Comparison, row: Sequence[Turn], before: int, total: int, folder: Path, view: Viewer
) -> list[Outcome]:
    outcomes = []
    for number, turn in enumerate(row, before + 1):
        watch = view.starts(number, total, turn)
        outcomes.append(attempt(comparison, turn, folder / f"{number:03}-{plain(turn)}", watch))
        view.ended(outcomes[-1])
    return outcomes


def plain(turn: Turn) -> str:
    """A turn as a part of a folder's name."""
    return re.sub(r"[^a-z0-9.=]+", "-", str(turn).lower()).strip("-.")


def versions() -> dict[str, str]:
    """What it was measured with."""
    cores = len(os.sched_getaffinity(0))
    return {
        "paceline": _installed(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {cores} core{'s' if cores > 1 else ''}",
    }


def _installed() -> str:
    try:
        return version("paceline")
    except PackageNotFoundError:
        return "not installed"
