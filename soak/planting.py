"""A copy of the source, with a bug in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[1]
TESTS_FAILED = 1  # pytest's exit code; a mutant that cannot even be imported gives another


class Planted(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def old(self) -> str: ...
    @property
    def new(self) -> str: ...


def copy(folder: Path) -> Path:
    source = folder / "src"
    shutil.copytree(ROOT / "src", source)
    return source


def plant(mutant: Planted, folder: Path, below: str = "") -> Path:
    """Copy the source there and change one piece of text in a file below this part of Paceline."""
    source = copy(folder)
    file = source / "paceline" / below / mutant.file
    text = file.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times"
    file.write_text(text.replace(mutant.old, mutant.new))
    return source


def spoil(source: Path) -> None:
    """Have the copy say that it is one as soon as it is imported."""
    marker = source / "paceline" / "sync" / "__init__.py"
    marker.write_text(marker.read_text() + "\nraise ImportError('this is the copy')\n")


def run(source: Path, *command: str, seconds: float = 900) -> subprocess.CompletedProcess[str]:
    """Run a module with the copy in place of the installed package."""
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
    )


def run_tests(source: Path, *tests: str, seconds: float = 900) -> subprocess.CompletedProcess[str]:
    return run(source, "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests, seconds=seconds)
