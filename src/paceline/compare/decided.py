"""What the servers of a run have decided, counted from their traces."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from msgspec import Struct

from paceline.observe import TraceError, read
from paceline.sync import Apply, Drop, Hold, Pushed


class Decided(Struct, frozen=True):
    """Over all shards: pulls that were held, gradients that were dropped, and the mean staleness of the others."""

    held_pulls: int
    dropped: int
    staleness: float | None


def decided(folder: Path) -> Decided | None:
    """Of the run in this folder; None if it had no servers, or none that has written a trace."""
    held = dropped = applied = stale = 0
    traces = _traces(folder)
    try:
        for trace in traces:
            for record in read(trace):
                for command in record.commands:
                    match command:
                        case Hold():
                            held += 1
                        case Apply(staleness=staleness):
                            applied += 1
                            stale += staleness
                        case Drop(answer=None):
                            dropped += 1
    except TraceError:
        return None
    return Decided(held, dropped, stale / applied if applied else None) if traces else None


def waited(folder: Path) -> dict[int, float]:
    """By worker, how many seconds after its own push the last one of the same round came, as the median of its rounds.

    Where each worker pushes once in a round, and nobody runs ahead.
    """
    came: dict[tuple[Path, int, int], dict[int, float]] = {}  # by trace, shard and round: when each worker's came
    try:
        for trace in _traces(folder):
            for record in read(trace):
                if isinstance(record.event, Pushed):
                    of_round = came.setdefault((trace, record.shard, record.event.iteration), {})
                    of_round.setdefault(record.event.worker, record.now)
    except TraceError:
        return {}
    waits: dict[int, list[float]] = {}
    for of_round in came.values():
        last = max(of_round.values())
        for worker, at in of_round.items():
            waits.setdefault(worker, []).append(last - at)
    return {worker: median(found) for worker, found in waits.items()}


def _traces(folder: Path) -> list[Path]:
    return sorted(folder.glob("server-*.trace"))
