"""Every planted bug of the data path is caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from soak.data_path import PLANTED, Planted
from soak.test_mutants import ROOT, TESTS_FAILED


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name.replace(" ", "-") for planted in PLANTED])
def test_a_bug_planted_in_the_data_path_is_caught(planted: Planted, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source)
    file = source / "paceline" / planted.file
    text = file.read_text()
    assert text.count(planted.old) == 1, f"{planted.file} has {planted.old!r} {text.count(planted.old)} times"
    file.write_text(text.replace(planted.old, planted.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", planted.tests]
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert result.returncode == TESTS_FAILED, result.stdout[-2000:]
