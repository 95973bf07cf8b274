"""A recorded run replays to the same decisions, under every model, and a changed decision is found where it is."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from typer.testing import CliRunner

from paceline.cli import app
from paceline.observe import Trace, read, replay
from paceline.sync import Command, Grant, Hold, Joined, Left, Pulled, Pushed, SetModel, TimerFired
from paceline.sync.models.base import UpdateRule
from tests.effort import cases
from tests.observe.runs import ALL, MINE, random_run, run_with_everything


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.trace"


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "a.trace"
    run_with_everything(path)
    return path


@pytest.mark.parametrize("expression", [*ALL, MINE])
@given(seed=st.integers(0, 2**32), shards=st.integers(1, 3), update=st.sampled_from([None, "immediate", "round"]))
@settings(max_examples=cases(5), deadline=None)
def test_a_run_replays_to_the_same_decisions(
    tmp_path_factory: pytest.TempPathFactory, expression: str, seed: int, shards: int, update: UpdateRule | None
) -> None:
    path = tmp_path_factory.mktemp("run") / "a.trace"
    random_run(path, Random(seed), [expression] * shards, update=update)
    result = replay(read(path))
    assert (result.difference, result.cut, result.shards) == (None, None, shards)
    assert result.commands >= result.events / 2 > 8


@given(seed=st.integers(0, 2**32), models=st.lists(st.sampled_from([*ALL, MINE]), min_size=2, max_size=5))
@settings(max_examples=cases(60), deadline=None)
def test_so_does_one_with_deaths_repeats_and_changes_of_model(
    tmp_path_factory: pytest.TempPathFactory, seed: int, models: list[str]
) -> None:
    path = tmp_path_factory.mktemp("run") / "a.trace"
    random_run(path, Random(seed), models[:1] * 3, models[1:])
    result = replay(read(path))
    assert (result.difference, result.cut) == (None, None)


def test_the_runs_of_these_tests_have_everything_in_them(run_path: Path) -> None:
    kinds = {type(record.event) for record in read(run_path)}
    assert kinds == {Pushed, Pulled, Joined, Left, TimerFired, SetModel}
    assert {record.shard for record in read(run_path)} == {0, 1}


def rewrite(source: Path, path: Path, number: int, change: object) -> None:
    """The same trace with one record changed."""
    recording = read(source)
    with Trace(path, recording.shards) as trace:
        for at, record in enumerate(recording, 1):
            trace.record(*(change(record) if at == number else record))  # type: ignore[operator]


@given(data=st.data())
@settings(max_examples=cases(60), deadline=None)
def test_a_changed_decision_is_found_where_it_is(
    tmp_path_factory: pytest.TempPathFactory, run_path: Path, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("changed") / "a.trace"
    records = list(read(run_path))
    number = data.draw(st.sampled_from([at for at, record in enumerate(records, 1) if record.commands]))
    record = records[number - 1]
    where = data.draw(st.integers(0, len(record.commands) - 1))
    command = record.commands[where]
    reason = structs.replace(command.reason, gap=command.reason.gap + 1)
    others = [structs.replace(command, reason=reason)]
    if isinstance(command, Grant):
        others += [structs.replace(command, version=command.version + 1)]
        others += [Hold(command.worker, command.iteration, command.reason)]
    planted: list[Command] = list(record.commands)
    planted[where : where + 1] = data.draw(st.sampled_from([[other] for other in others] + [[], [command, command]]))
    rewrite(run_path, path, number, lambda record: record._replace(commands=planted))
    difference = replay(read(path)).difference
    assert difference is not None
    assert (difference.record, difference.shard, difference.event) == (number, record.shard, record.event)
    assert (difference.recorded, difference.replayed) == (planted, record.commands)


def test_replay_prints_whether_the_decisions_are_the_same(run_path: Path, path: Path) -> None:
    ran = CliRunner().invoke(app, ["replay", str(run_path)])
    events = len(list(read(run_path)))
    assert (ran.exit_code, ran.output) == (0, f"{run_path}: {events} events on 2 shards, the same decisions\n")
    path.write_bytes(run_path.read_bytes()[:-3])
    ran = CliRunner().invoke(app, ["replay", str(path)])
    assert ran.exit_code == 0
    assert f"the file ends within record {events}, " in ran.output
    document = json.loads(CliRunner().invoke(app, ["replay", str(path), "--json"]).output)
    assert (document["same"], document["events"], document["cut"]["record"]) == (True, events - 1, events)


def test_replay_prints_the_first_difference(run_path: Path, path: Path) -> None:
    rewrite(run_path, path, 3, lambda record: record._replace(commands=[]))
    third = list(read(run_path))[2]
    ran = CliRunner().invoke(app, ["replay", str(path)])
    assert ran.exit_code == 1
    assert f"record 3, shard {third.shard}, at {third.now:g}: {third.event}\n  recorded nothing\n" in ran.output
    assert f"  replayed\n    {third.commands[0]}\n" in ran.output
    ran = CliRunner().invoke(app, ["replay", str(path), "--json"])
    assert ran.exit_code == 1
    difference = json.loads(ran.output)["difference"]
    assert (difference["record"], difference["recorded"]) == (3, [])
    assert difference["event"]["kind"] == type(third.event).__name__
    assert difference["replayed"][0]["reason"]["rule"] == third.commands[0].reason.rule
