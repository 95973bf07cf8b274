"""Hands the events of a trace to fresh shards, and tells the first decision that is not the recorded one."""

from __future__ import annotations

from msgspec import Struct

from paceline.observe.trace import Cut, Record, Recording, TraceError
from paceline.sync import Command, Event, Shard, SyncError


class Difference(Struct, frozen=True):
    """The first event that the replay answered otherwise."""

    record: int  # the first is 1
    shard: int
    now: float
    event: Event
    recorded: list[Command]
    replayed: list[Command]

    def __str__(self) -> str:
        lines = [f"record {self.record}, shard {self.shard}, at {self.now:g}: {self.event}"]
        for title, commands in (("recorded", self.recorded), ("replayed", self.replayed)):
            lines.append(f"  {title}{'' if commands else ' nothing'}")
            lines += [f"    {command}" for command in commands]
        return "\n".join(lines)


class Replay(Struct, frozen=True):
    """How a replay went. It ends with the first difference, if there is one."""

    shards: int
    events: int
    commands: int
    difference: Difference | None = None
    cut: Cut | None = None

    @property
    def same(self) -> bool:
        return self.difference is None


def replay(recording: Recording) -> Replay:
    """Every decision again, reasons included. A user's own model is imported by the path that the trace has."""
    shards = _build(recording)
    events = commands = 0
    for record in recording:
        events += 1
        replayed = _handle(shards[record.shard], record, f"{recording.path}: record {events}")
        if replayed != record.commands:
            return Replay(len(shards), events, commands, Difference(events, *record, replayed))
        commands += len(replayed)
    return Replay(len(shards), events, commands, cut=recording.cut)


def _build(recording: Recording) -> dict[int, Shard]:
    try:
        return {setup.index: setup.build() for setup in recording.shards}
    except SyncError as error:
        raise TraceError(f"{recording.path}: its shards cannot be built: {error}") from error


def _handle(shard: Shard, record: Record, where: str) -> list[Command]:
    try:
        return shard.handle(record.event, record.now)
    except SyncError as error:
        raise TraceError(f"{where}: {record.event} cannot be handled: {error}") from error
