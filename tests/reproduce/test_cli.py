"""`paceline reproduce` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from paceline.cli import app
from paceline.reproduce.all import TARGETS
from paceline.reproduce.cli import _chosen


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", *arguments], env={"COLUMNS": "200", "FORCE_COLOR": None})


def test_without_a_target_it_lists_them() -> None:
    listed = call()
    assert listed.exit_code == 0
    for name, target in TARGETS.items():
        assert name in listed.stdout
        assert target.paper in listed.stdout
    assert [entry["name"] for entry in json.loads(call("--json").stdout)] == list(TARGETS)


def test_one_target_for_people(tmp_path: Path) -> None:
    ran = call("esync-speed", "--quick", "--out", str(tmp_path))
    assert ran.exit_code == 0, ran.output
    assert "ESync, figures 4 and 5" in ran.stdout
    assert "assumed: " in ran.stdout
    assert "calibrated: " in ran.stdout
    assert "the rule: " in ran.stdout
    assert str(tmp_path / "esync-speed.png") in ran.stdout
    assert (tmp_path / "esync-speed.png").is_file()


def test_several_for_programs(tmp_path: Path) -> None:
    ran = call("elasticbsp-fig4", "esync-speed", "elasticbsp-fig4", "--quick", "--json", "--out", str(tmp_path))
    first, second = json.loads(ran.stdout)
    assert (first["name"], second["name"]) == ("elasticbsp-fig4", "esync-speed")
    assert set(first["rows"][0]) == {"group", "cell", "paper", "ours", "unit", "calibrated"}
    assert set(first["claims"][0]) == {"text", "verdict", "rule", "why"}
    assert Path(second["figure"]).is_file()
    assert second["cluster"]["workers"][0]["seconds"] == 0.03


def test_a_claim_that_does_not_hold_is_no_error(tmp_path: Path) -> None:
    ran = call("elasticbsp-fig4", "--quick", "--out", str(tmp_path))
    assert "does not hold: " in ran.stdout
    assert ran.exit_code == 0


def test_a_target_that_is_not_there() -> None:
    ran = call("psp-table2")
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert len(ran.stderr.splitlines()) == 1
    assert "psp-table1" in ran.stderr
    assert call("all", "nonsense").exit_code == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = call("esync-speed", "--quick", "--out", str(tmp_path / "file"))
    assert ran.exit_code == 2
    assert len(ran.stderr.splitlines()) == 1


def test_all_leaves_out_what_takes_hours_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    timed = [name for name, target in TARGETS.items() if not target.learns]
    assert [target.name for target in _chosen(["all"], quick=False)] == timed
    assert "esync-accuracy" in capsys.readouterr().err
    assert [target.name for target in _chosen(["all"], quick=True)] == list(TARGETS)
    assert not capsys.readouterr().err
    assert [target.name for target in _chosen(["esync-accuracy"], quick=False)] == ["esync-accuracy"]
