"""ESync, algorithm 2: the State Server's QUERY-STATE, written down as the paper has it, over a plain list of records.

The paper runs one batch before training, so that every device's capability is known from its first query on. A device
that has not been heard of yet stands here for one that has not completed its pull, and is the slowest of all.
"""

from __future__ import annotations

from math import inf


class Record:
    """(rank, local_iterations, capability, last_finish_time, ready, round)."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.local_iterations = 0
        self.capability = inf
        self.last_finish_time = -inf
        self.ready = False
        self.round = 0
        self.heard_of = False
        self.first_round: int | None = 0  # None until one that joined has begun a round; not in the paper


class StateServer:
    def __init__(self, p: int, epsilon: float) -> None:
        self.epsilon = epsilon
        self.records = [Record(rank) for rank in range(p)]

    def QUERY_STATE(self, r: int, k: int, c: float, t_e: float, now: float) -> bool:
        current = self.record(r)
        current.local_iterations, current.capability, current.last_finish_time = k, c, t_e
        current.heard_of = True
        slowest = self.FIND_SLOWEST_DEVICE()
        if k == 0 or self.has_not_completed_the_pull(slowest, current.round):
            if k == 0 or not (slowest.ready and current.round == current.first_round):
                return False  # else those that are ready may wait for the one that joined; not in the paper
        current_time = now
        rest_time = slowest.capability - current_time + slowest.last_finish_time
        if current is slowest or slowest.ready or current.capability + self.epsilon > rest_time:
            current.ready = True
            return True
        return False

    def RESET_STATE_SERVER(self, r: int, t: int, t_e: float) -> None:
        """Device r has the model of round t since t_e."""
        current = self.record(r)
        current.local_iterations, current.last_finish_time, current.ready, current.round = 0, t_e, False, t
        current.heard_of = True
        current.first_round = t if current.first_round is None else current.first_round

    def FIND_SLOWEST_DEVICE(self) -> Record:
        slowest = self.records[0]
        for record in self.records:
            if record.capability > slowest.capability:
                slowest = record
        return slowest

    def has_not_completed_the_pull(self, slowest: Record, round_: int) -> bool:
        return not slowest.heard_of or slowest.round < round_

    def record(self, r: int) -> Record:
        [record] = [record for record in self.records if record.rank == r]
        return record

    # The paper's devices are a fixed set. Ours come and go.

    def add(self, r: int) -> None:
        joined = Record(r)
        joined.first_round = None
        self.records = sorted([*self.records, joined], key=lambda record: record.rank)

    def remove(self, r: int) -> None:
        self.records.remove(self.record(r))
