"""A whole comparison: first the grid, if there is one, then all models in turn.

It may take hours, so what has ended is kept at once, and Ctrl-C ends it with what there is.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from msgspec import Struct

from paceline.compare.one import Watch, attempt
from paceline.compare.outcome import Outcome, Standing, best, standings
from paceline.compare.plan import Comparison, Turn, trials, turns

REPORT = "comparison.json"


class Viewer(Protocol):
    """Who is told how far it is."""

    def starts(self, number: int, total: int, turn: Turn) -> Watch: ...
    def ended(self, outcome: Outcome) -> None: ...


class Report(Struct, frozen=True):
    """All of it: `rows` has one for each model and seed, `tried` those by which values of the grid were chosen.

    Fewer than were `planned` if it is not over, or was interrupted.
    """

    command: str
    comparison: Comparison
    versions: dict[str, str]
    chosen: dict[str, str]
    models: list[Standing]
    rows: list[Outcome]
    tried: list[Outcome]
    planned: int

    @property
    def ended(self) -> int:
        """How many runs there have been."""
        return len(self.tried) + len(self.rows)

    @property
    def failed(self) -> list[Outcome]:
        return [row for row in (*self.tried, *self.rows) if row.error is not None]

    def write(self, path: Path) -> None:
        """Whoever reads it meanwhile, or after this was killed, has the whole report or the one before it."""
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))
        unfinished.replace(path)


def compare(comparison: Comparison, folder: Path, view: Viewer) -> Report:
    """One run after the other, each in a folder of its own, until all have ended or Ctrl-C comes."""
    first = trials(comparison)
    planned = len(first) + len(comparison.models) * comparison.seeds
    ended: list[Outcome] = []

    def row() -> Iterator[Turn]:
        yield from first
        yield from turns(comparison, best(ended))

    def report() -> Report:
        tried, rows = ended[: len(first)], ended[len(first) :]
        models = standings(rows, comparison.models, comparison.baseline)
        return Report(comparison.command(), comparison, versions(), best(tried), models, rows, tried, planned)

    try:
        for number, turn in enumerate(row(), 1):
            watch = view.starts(number, planned, turn)
            ended.append(attempt(comparison, turn, folder / f"{number:03}-{plain(turn)}", watch))
            report().write(folder / REPORT)
            view.ended(ended[-1])
    except KeyboardInterrupt:
        pass
    return report()


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
