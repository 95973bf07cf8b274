"""Where runs are kept: never two in one folder unless it was asked for, and a clear word if there can be none."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli import app
from paceline.launch.run_folder import run_folder

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits.py")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_runs_that_begin_in_the_same_second_have_folders_of_their_own() -> None:
    folders = [run_folder(None, "digits") for _ in range(30)]
    assert len(set(folders)) == 30
    assert all(folder.is_dir() and folder.parent == Path("runs") for folder in folders)


def test_a_folder_that_was_asked_for_is_used_again() -> None:
    asked = Path("here") / "it" / "is"
    assert run_folder(str(asked), "digits") == asked
    (asked / "kept").touch()
    assert run_folder(str(asked), "digits") == asked
    assert (asked / "kept").exists()


@pytest.mark.parametrize(
    "command",
    [["run", DIGITS], ["compare", "--sync", "asp", "--target", "0.9", DIGITS], ["demo"], ["serve", "--workers", "2"]],
)
@pytest.mark.parametrize("folder", ["file", "file/below"])
def test_where_there_can_be_no_folder_it_is_said(command: list[str], folder: str) -> None:
    Path("file").touch()
    result = CliRunner().invoke(app, [command[0], "--folder", folder, *command[1:]])
    assert result.exit_code == 2, result.output
    assert folder in result.stderr
    assert "give another with --folder" in result.stderr
    assert result.stderr.count("\n") == 1


def test_where_nothing_can_be_kept_in_runs_it_is_said() -> None:
    Path("runs").touch()
    result = CliRunner().invoke(app, ["run", DIGITS])
    assert result.exit_code == 2, result.output
    assert "there can be no folder" in result.stderr
