"""The invariants have teeth: each one speaks up when a shard does what it forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from paceline.sync import (
    Advance,
    Apply,
    Command,
    Drop,
    Event,
    Grant,
    Hold,
    InvariantViolated,
    Joined,
    Left,
    Pulled,
    Pushed,
    SetModel,
    Shard,
    Stop,
)
from paceline.sync.invariants import OF_COMMANDS, OF_EVENTS, Watch, nothing_waits_in_vain

Tamper = Callable[[list[Command]], list[Command]]


class Tampered(Shard):
    """A shard whose answer to the last event is changed on its way out."""

    tamper: Tamper | None = None

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = super().handle(event, now)
        return self.tamper(commands) if self.tamper else commands


def change(kind: type, **fields: Any) -> Tamper:
    return lambda commands: [
        msgspec.structs.replace(command, **fields) if isinstance(command, kind) else command for command in commands
    ]


def without(kind: type) -> Tamper:
    return lambda commands: [command for command in commands if not isinstance(command, kind)]


def twice(kind: type) -> Tamper:
    return lambda commands: [
        again for command in commands for again in [command] * (2 if isinstance(command, kind) else 1)
    ]


def as_drop(commands: list[Command]) -> list[Command]:
    return [
        Drop(command.worker, command.iteration, msgspec.structs.replace(command.reason, cause="late"))
        if isinstance(command, Apply)
        else command
        for command in commands
    ]


ROUND: list[Event] = [Pushed(0, 0), Pulled(0, 0), Pushed(1, 0)]
AHEAD: list[Event] = [Pushed(0, 0), Pulled(0, 0), Pushed(0, 1), Pulled(0, 1)]
CASES: list[tuple[str, str, list[Event], Tamper]] = [
    ("no_update_is_applied_twice", "bsp", ROUND, twice(Apply)),
    ("no_update_is_applied_twice", "bsp", ROUND, change(Apply, iteration=5)),
    ("no_update_is_applied_twice", "bsp", [*ROUND, Pulled(1, 0)], lambda _: [apply()]),
    ("no_update_is_lost", "bsp", [Pushed(0, 0)], as_drop),
    ("no_update_is_lost", "bsp", ROUND, change(Advance, gradients=1)),
    ("no_pull_is_answered_twice", "bsp", ROUND, twice(Grant)),
    ("no_pull_is_answered_twice", "bsp", ROUND, change(Grant, worker=1)),
    ("versions_never_go_back", "bsp", ROUND, change(Advance, version=-1)),
    ("versions_never_go_back", "asp", [Pushed(0, 0), Pushed(1, 0)], change(Advance, to=0)),
    ("versions_never_go_back", "bsp", ROUND, change(Grant, version=0)),
    ("ssp_bounds_the_gap", "ssp(s=1)", AHEAD, lambda _: [grant(0, 1)]),
    ("ssp_bounds_the_gap", "bsp", AHEAD[:2], lambda _: [grant(0, 0, version=0)]),
    ("pssp_never_holds_below_s", "pssp(s=2, c=1)", AHEAD, lambda _: [hold(0, 1)]),
    ("elastic_stops_are_within_r", "elastic_bsp(R=3)", ROUND, change(Grant, stop=Stop(1, 9))),
    ("elastic_stops_are_within_r", "elastic_bsp(R=3)", ROUND, change(Grant, stop=Stop(1, 0))),
    ("no_iteration_is_half_summed", "bsp", [Pushed(0, 0), Pushed(1, 0)], change(Apply, round=None)),
    ("psp_rounds_never_mix", "psp(c=2)", [*ROUND, Pushed(0, 1)], change(Apply, round=7)),
    ("esync_takes_one_contribution_each", "esync", [Pushed(0, 0)], lambda c: [*c, advance(gradients=1)]),
    ("every_message_is_answered", "bsp", [Pushed(0, 0)], without(Apply)),
    ("every_message_is_answered", "bsp", [Pushed(0, 0), Pulled(0, 0)], without(Hold)),
    ("no_pull_is_forgotten", "bsp", ROUND, without(Grant)),
]


def apply() -> Apply:
    shard = Shard("bsp", 2)
    (command,) = shard.handle(Pushed(1, 0), 0.0)
    assert isinstance(command, Apply)
    return command


def grant(worker: int, iteration: int, version: int = 2) -> Grant:
    (command,) = Shard("asp", 2).handle(Pulled(worker, iteration), 0.0)
    assert isinstance(command, Grant)
    return msgspec.structs.replace(command, version=version)


def hold(worker: int, iteration: int) -> Hold:
    (command,) = Shard("bsp", 2).handle(Pulled(worker, iteration), 0.0)
    assert isinstance(command, Hold)
    return command


def advance(gradients: int) -> Advance:
    shard = Shard("asp", 1)
    command = shard.handle(Pushed(0, 0), 0.0)[-1]
    assert isinstance(command, Advance)
    return msgspec.structs.replace(command, gradients=gradients)


@pytest.mark.parametrize(("name", "model", "events", "tamper"), CASES, ids=[case[0] for case in CASES])
def test_an_invariant_notices(name: str, model: str, events: list[Event], tamper: Tamper) -> None:
    shard = Tampered(model, 2)
    watch = Watch(shard)
    for second, event in enumerate(events[:-1]):
        watch.handle(event, float(second))
    shard.tamper = tamper
    with pytest.raises(InvariantViolated, match=name) as caught:
        watch.handle(events[-1], float(len(events)))
    assert str(events[-1]) in str(caught.value), "the story is told"


def test_elastic_barriers_show_one_version_notices() -> None:
    """One of two pulls that waited at a barrier is granted later, when the first one's next gradient is in already."""

    class Late(Shard):
        kept: Grant | None = None

        def handle(self, event: Event, now: float) -> list[Command]:
            commands = super().handle(event, now)
            if self.kept is not None:
                self.waiting -= 1
                return [*commands, msgspec.structs.replace(self.kept, version=self.version)]
            if sum(isinstance(command, Grant) for command in commands) == 2 and isinstance(commands[-1], Grant):
                self.kept = commands.pop()  # type: ignore[assignment]
                self.waiting += 1
            return commands

    watch = Watch(Late("elastic_bsp(R=2)", 3))
    events: list[Event] = [Pushed(0, 0), Pulled(0, 0), Pushed(1, 0), Pulled(1, 0), Pushed(2, 0)]
    for event in events:
        watch.handle(event, 0.0)
    with pytest.raises(InvariantViolated, match="elastic_barriers_show_one_version"):
        watch.handle(Pushed(0, 1), 0.0)


def test_every_invariant_is_tried_here() -> None:
    tried = {case[0] for case in CASES} | {"elastic_barriers_show_one_version"}
    assert tried == {check.__name__ for check in (*OF_COMMANDS, *OF_EVENTS)}


def test_a_pull_that_waits_for_nobody_is_noticed() -> None:
    class Forgets(Shard):
        def _close(self, *arguments: Any) -> None:
            """Closes nothing."""

        def _settle(self, commands: list[Command], *arguments: Any) -> list[Command]:
            return commands

    watch = Watch(Forgets("bsp", 2))
    for event in [*ROUND, Pulled(1, 0)]:
        watch.handle(event, 0.0)
    with pytest.raises(InvariantViolated, match=r"nothing_waits_in_vain.*worker 0 at 0"):
        nothing_waits_in_vain([watch])


def test_the_account_follows_membership_and_models() -> None:
    """No false alarm where much happens: a life replaced, a death, a change of model, a repeat."""
    watch = Watch(Shard("esync", 3))
    events: list[Event] = [
        Pushed(0, 0),
        Pulled(0, 0),
        Joined(1, 1),
        Pushed(2, 0),
        Pushed(1, 0, 0),
        Pushed(1, 0, 1),
        Pushed(1, 0, 1),
        SetModel("ssp(s=1)"),
        Left(2),
        Left(1, 0),
        Pulled(1, 0, 1),
        Pushed(0, 1),
    ]
    for second, event in enumerate(events):
        watch.handle(event, float(second))
    assert watch.lives == {0: 0, 1: 1}
    nothing_waits_in_vain([watch])
