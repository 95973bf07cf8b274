"""What the documents say is true: their examples run, their links lead somewhere, and the walk-through adds a model."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
LATER = "after the walk-through"


def blocks(document: Path, language: str) -> list[tuple[str, str]]:
    """The code blocks in one language, each with the note before it."""
    found = BLOCK.finditer(document.read_text())
    return [(block["note"] or "", block["text"]) for block in found if block["language"] == language]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run_and_print_what_they_show(document: Path) -> None:
    examples = "".join(text for note, text in blocks(document, "pycon") if note != LATER)
    test = doctest.DocTestParser().get_doctest(examples, {}, document.name, str(document), 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(document.read_text()):
        assert (document.parent / target).exists(), target


def test_the_walk_through_adds_a_model_that_passes_the_contract(tmp_path: Path) -> None:
    """In a copy of the repository: write the file, append the line, run its example and the suites that see it."""
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if (ROOT / ".mypy_cache").exists():  # what lint has found out of all the rest
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / ".mypy_cache")
    document = ROOT / "docs" / "models.md"
    for note, text in blocks(document, "python"):
        verb, _, path = note.partition(": ")
        assert verb in ("file", "append"), note
        before = (tmp_path / path).read_text() if verb == "append" else ""
        (tmp_path / path).write_text(before + text)
    (tmp_path / "examples.txt").write_text("".join(text for note, text in blocks(document, "pycon") if note == LATER))
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    for command in (
        ["-m", "ruff", "check", "--fix", "-q", "src"],
        ["-m", "doctest", "examples.txt"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract", "tests/sim", "-k", "pack or registered"],
        ["-m", "paceline.cli", "models", "pack"],
        ["-m", "mypy", "src/paceline/sync"],
    ):
        ran = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len((tmp_path / "src/paceline/sync/models/pack.py").read_text().splitlines()) < 60
