"""The bench of training steps trains for real, in all systems. Times are not judged."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from paceline.bench.step import SYSTEMS, StepRow
from paceline.cli import app
from tests.effort import long


@long
def test_a_cell_has_one_row_for_each_system() -> None:
    ran = CliRunner().invoke(
        app, ["bench", "step", "--net", "cnn", "--workers", "2", "--repeats", "1", "--json"], catch_exceptions=False
    )
    assert ran.exit_code == 0, ran.output
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert tuple(row["system"] for row in rows) == SYSTEMS
    none, ddp, *_ = rows
    for row in rows:
        assert tuple(row) == StepRow.__struct_fields__
        assert (row["net"], row["workers"]) == ("cnn", 2)
        assert row["step_ms"] > 0
        assert row["added_ms"] == pytest.approx(row["step_ms"] - none["step_ms"])
        assert row["of_ddp"] == pytest.approx(row["added_ms"] / ddp["added_ms"])


def test_an_unknown_net_is_named() -> None:
    ran = CliRunner().invoke(app, ["bench", "step", "--net", "lstm"])
    assert ran.exit_code == 2
    assert "there is no 'lstm'; there are cnn, mlp, resnet18" in ran.output
