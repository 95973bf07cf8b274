"""The core under drawn faults: no seed finds anything wrong, what is drawn is varied, and failures can be replayed."""

from __future__ import annotations

import json
from collections import Counter
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from paceline.cli import app
from paceline.observe import Trace
from paceline.sim.faults import cli as faults_cli
from paceline.sim.faults.cli import _setups
from paceline.sim.faults.draw import EXAMPLES, KINDS, draw
from paceline.sim.faults.seeds import SeedFailed, run_seed
from paceline.sim.judge.plans import PLANNERS
from paceline.sim.judge.rules import RULES
from paceline.sync import MODELS, Apply, Command, Event, Grant, Holding, Pulled, Shard, View
from paceline.sync.models.base import Bound
from tests.effort import cases

CHUNKS = 20
LEAST = 20  # faults that have an effect, in every run
SEEDS = cases(1000, soak=20_000)


class Own(Holding, frozen=True):
    """A user's own model."""

    s: Bound

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration <= view.slowest + self.s


class Hasty(Shard):
    """Grants tell a version too much."""

    def handle(self, event: Event, now: float) -> list[Command]:
        return [
            msgspec.structs.replace(command, version=command.version + 1)
            if isinstance(command, Grant) and command.iteration > 2
            else command
            for command in super().handle(event, now)
        ]


class Raises(Shard):
    """Cannot take a gradient of the third iteration."""

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = super().handle(event, now)
        if any(isinstance(command, Apply) and command.iteration == 3 for command in commands):
            raise KeyError(3)
        return commands


# The seeds.


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_seed_finds_a_violation(chunk: int) -> None:
    for seed in range(chunk, SEEDS, CHUNKS):
        outcome = run_seed(seed)
        assert outcome.faults.total() >= LEAST, f"seed {seed} had {outcome.faults}"


def test_every_kind_of_fault_strikes_and_every_model_is_in_force() -> None:
    struck: Counter[str] = Counter()
    expressions: set[str] = set()
    for seed in range(2 * len(EXAMPLES)):
        struck += run_seed(seed).faults
        expressions.update(draw(seed).expressions)
    assert set(struck) == set(KINDS.values())
    assert expressions >= {expression for model in MODELS.values() for expression in model.examples}


def test_what_is_drawn_is_varied() -> None:
    plans = [draw(seed) for seed in range(200)]
    assert {len(plan.paces) for plan in plans} == {1, 2, 3, 4, 5, 6}
    assert {plan.shards for plan in plans} == {1, 2, 3, 4}
    assert any(plan.b < 1 for plan in plans)
    assert any(plan.changes for plan in plans)
    assert all(len(plan.faults) >= LEAST for plan in plans)


@pytest.mark.parametrize("model", ["bsp", "elastic_bsp(R=4)", "psp(c=2, b=0.5, tau_pull=0.5)", f"{__name__}:Own(s=2)"])
def test_one_model_can_be_had_alone(model: str) -> None:
    for seed in range(20):
        run_seed(seed, model)
        assert len(draw(seed, model).expressions) == 1


def written(seed: int) -> bytes:
    file = BytesIO()
    with Trace(file, _setups(draw(seed))) as trace:
        run_seed(seed, on_event=trace.record)
    return file.getvalue()


def test_one_seed_gives_one_trace_byte_for_byte() -> None:
    for seed in (0, 1, 29, 38):
        assert written(seed) == written(seed)
    assert written(0) != written(39)


# The judge.


def test_every_model_has_its_rule_written_down_a_second_time() -> None:
    assert RULES.keys() == MODELS.keys()


def test_the_plain_planners_find_what_can_be_seen_by_eye() -> None:
    ends = [[1.0, 2.5, 4.0], [2.6, 5.0, 7.5], [0.9, 1.8, 2.7]]
    for planner in PLANNERS.values():
        assert planner(ends) == [2, 1, 3]


# Failures.


@pytest.mark.parametrize(("shard", "story"), [(Hasty, "versions_never_go_back"), (Raises, "KeyError: 3")])
def test_a_failure_tells_its_seed_and_the_command_that_replays_it(shard: type[Shard], story: str) -> None:
    with pytest.raises(SeedFailed, match=story) as caught:
        run_seed(17, shard=shard)
    assert "seed 17, under" in str(caught.value)
    assert str(caught.value).endswith("to see it again: paceline faults --seed 17")
    with pytest.raises(SeedFailed) as again:
        run_seed(17, shard=shard)
    assert str(again.value) == str(caught.value)


def test_the_command_of_a_failure_under_one_model_has_the_model() -> None:
    with pytest.raises(SeedFailed) as caught:
        run_seed(4, "ssp(s=3)", shard=Hasty)
    assert caught.value.command == "paceline faults --seed 4 --sync 'ssp(s=3)'"


# The command line.


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["faults", *arguments], env={"COLUMNS": "200"})


def test_the_command_tells_what_has_happened() -> None:
    result = call("--seeds", "3", "--first", "5")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("3 seeds: ")
    assert "no violation" in result.stdout
    assert "clock jump" in result.stdout


def test_the_command_as_json() -> None:
    document = json.loads(call("--seed", "7", "--sync", "bsp", "--json").stdout)
    assert (document["first"], document["violation"]) == (7, None)
    assert document["tally"]["models"] == {"bsp": 1}
    assert sum(document["tally"]["faults"].values()) >= LEAST


def test_the_command_writes_a_trace_that_replays(tmp_path: Path) -> None:
    file = tmp_path / "faults.trace"
    assert call("--seed", "3", "--trace", str(file)).exit_code == 0
    replayed = CliRunner().invoke(app, ["replay", str(file)])
    assert (replayed.exit_code, "the same decisions" in replayed.stdout) == (0, True)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_command_ends_with_what_replays_a_violation(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(
        faults_cli, "run_seed", lambda seed, model, on_event: run_seed(seed, model, on_event, shard=Hasty)
    )
    result = call("--first", "17", *options)
    assert result.exit_code == 1
    assert "versions_never_go_back" in result.stderr
    assert result.stderr.splitlines()[-1].endswith("paceline faults --seed 17")
    if options:
        assert json.loads(result.stdout)["violation"] == {"seed": 17, "command": "paceline faults --seed 17"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--seeds", "0"), "--seeds 0 is too few; give a whole number from 1"),
        (("--first", "-1"), "-1 is no seed; give a whole number from 0"),
        (("--sync", "spp"), "there is no model 'spp', did you mean 'ssp'?"),
        (("--trace", "x.trace"), "--trace writes the events of one run; give its --seed"),
        (("--seed", "1", "--trace", "/nowhere/x"), "cannot write the trace"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    result = call(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("paceline: ")
    assert complaint in line
