"""Groups that take turns, so that what the machine does in between hits all of them alike."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.bench.rivals import Running

BATCH = 0.3  # seconds that a batch should take
MOST = 2000  # rounds in a batch


def take_turns(groups: Sequence[Running], repeats: int) -> list[list[float]]:
    """Seconds of a round of each group, in each of `repeats` batches. A first turn says how long a batch is."""
    batches = [min(max(round(BATCH / group.rounds(2) * 2), 1), MOST) for group in groups]
    taken: list[list[float]] = [[] for _ in groups]
    for _ in range(repeats):
        for group, batch, seconds in zip(groups, batches, taken, strict=True):
            seconds.append(group.rounds(batch) / batch)
    return taken
