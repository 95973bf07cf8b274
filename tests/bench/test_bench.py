"""The benchmarks run, and what they print can be read. Their times are nobody's business here."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from paceline.bench import machine, planners, sim
from paceline.cli import app
from paceline.sync import MODELS, Shard


def rows(*arguments: str) -> list[dict[str, object]]:
    ran = CliRunner().invoke(app, ["bench", *arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.output.splitlines()]


def test_planners_has_a_row_for_every_cell_of_the_papers_table_and_the_large_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a smaller table: the others only take longer."""
    few = {planner: dict(list(sizes.items())[:3]) for planner, sizes in planners.PAPER.items()}
    monkeypatch.setattr(planners, "PAPER", few)
    monkeypatch.setattr(planners, "LARGE", (1000, 15))
    found = {(row["planner"], row["workers"], row["horizon"]) for row in rows("planners", "--repeats", "1")}
    expected = {(planner, *size) for planner, sizes in planners.PAPER.items() for size in sizes}
    assert found == expected | {("zipline", *planners.LARGE)}


def test_machine_has_a_row_for_every_model_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SIZES", (10, 100))
    found = rows("machine", "--repeats", "1", "--events", "1000")
    assert len(found) == len(MODELS) * len(machine.SIZES)
    assert all(isinstance(row["microseconds"], float) and row["microseconds"] > 0 for row in found)


def test_a_recording_holds_only_what_workers_that_wait_would_send() -> None:
    """Replayed, it gives the same holds again, and nothing is refused or repeated."""
    for name in machine.EXPRESSIONS:
        model = machine.model(name, 20)
        shard = Shard(model, 20)
        for event, now in machine.record(model, 20, 2000):
            shard.handle(event, now)
        assert (shard.counters.refused, shard.counters.repeated) == (0, 0)
        assert shard.counters.advances > 10


def test_the_simulator_is_timed_at_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "SIZES", (10, 100, 1000))
    ran = CliRunner().invoke(app, ["bench", "sim", "--iterations", "1000", "--repeats", "1", "--json"])
    assert ran.exit_code == 0, ran.output
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["workers"] for row in rows] == [10, 100, 1000]
    assert all(row["seconds"] > 0 and row["events_per_second"] > 0 and row["growth"] >= 1 for row in rows)
    assert rows[0]["iterations"] > 500
    assert rows[-1]["kilobytes_per_worker"] < 1.2 * rows[1]["kilobytes_per_worker"], "no faster than workers"


def test_the_simulator_predicts_real_workers() -> None:
    """It is fed the times that were measured, so that a busy machine is no excuse; a quarter is left for the ends."""
    ran = CliRunner().invoke(
        app, ["bench", "sim-vs-real", "--sync", "bsp", "--sync", "asp", "--seconds", "3", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    bsp, asp = (json.loads(line) for line in ran.stdout.splitlines())
    assert (bsp["model"], asp["model"]) == ("bsp", "asp")
    assert abs(bsp["off"]) < 0.25
    assert abs(asp["off"]) < 0.25
    assert bsp["held_pulls"] > 10
    assert abs(bsp["held_off"]) < 0.25
    assert asp["held_pulls"] == asp["predicted_held"] == 0
    assert asp["ms_per_iteration"] < bsp["ms_per_iteration"]


def test_queries_of_the_state_server_are_timed() -> None:
    few, more = rows("state-server", "--workers", "2", "--workers", "20", "--repeats", "1")
    assert (few["workers"], more["workers"]) == (2, 20)
    assert all(row["microseconds"] > row["machine_microseconds"] > 0 for row in (few, more))  # type: ignore[operator]
