"""What real servers decided, the core decides again from their traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.nodes import Job
from paceline.observe.replay import replay
from paceline.observe.trace import read
from paceline.sync import MODELS
from tests.nodes import programs
from tests.nodes.runs import run

EXPRESSIONS = [example for model in MODELS.values() for example in model.examples]


def replayed(traces: Path, servers: int) -> int:
    """How many events were replayed with the same commands."""
    events = 0
    for server in range(servers):
        recording = read(traces / f"server-{server}.trace")
        outcome = replay(recording)
        assert outcome.difference is None, str(outcome.difference)
        assert recording.cut is None
        events += outcome.events
    return events


@pytest.mark.parametrize("sync", EXPRESSIONS)
def test_a_run_of_every_model_replays(sync: str, tmp_path: Path) -> None:
    steps = 20
    run(
        "memory", Job(workers=3, servers=2, sync=sync), programs.uneven, {"size": 5000, "steps": steps}, traces=tmp_path
    )
    assert replayed(tmp_path, 2) > 2 * steps


@pytest.mark.parametrize("wire", ["shared-memory", "tcp"])
def test_a_run_that_changes_its_model_replays(wire: str, tmp_path: Path) -> None:
    changes = {"4": ["ssp(s=2)", None], "8": ["asp", 1], "12": ["elastic_bsp(R=4)", None], "16": ["bsp", None]}
    arguments = {"size": 50_000, "steps": 24, "changes": changes}
    run(wire, Job(workers=3, servers=2, sync="bsp"), programs.uneven, arguments, traces=tmp_path)
    rules = {
        command.reason.rule
        for server in (0, 1)
        for record in read(tmp_path / f"server-{server}.trace")
        for command in record.commands
    }
    assert {"bsp", "ssp(s=2)", "asp", "elastic_bsp(R=4)"} <= rules
    assert replayed(tmp_path, 2) > 100
