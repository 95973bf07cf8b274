"""What the servers of a run have decided, counted from their traces."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from paceline.observe import TraceError, read
from paceline.sync import Apply, Drop, Hold


class Decided(Struct, frozen=True):
    """Over all shards: pulls that were held, gradients that were dropped, and the mean staleness of the others."""

    held_pulls: int
    dropped: int
    staleness: float | None


def decided(folder: Path) -> Decided | None:
    """Of the run in this folder; None if it had no servers, or none that has written a trace."""
    held = dropped = applied = stale = 0
    traces = sorted(folder.glob("server-*.trace"))
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
