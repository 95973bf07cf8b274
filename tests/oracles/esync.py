"""ESync, algorithm 2: the State Server's QUERY-STATE, written down as the paper has it, over a plain list of records.

The paper runs one batch before training, so that every device's capability is known from its first query on. Here one
that has not been measured yet is the slowest of all, unless who asks is known to be of another kind than the fastest;
one that has not been heard of yet has not completed its pull. Which of equally slow devices is the slowest the paper
leaves open.
"""

from __future__ import annotations

from math import inf


class Record:
    """(rank, local_iterations, capability, last_finish_time, ready, round)."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.local_iterations = 0
        self.capability = inf
        self.shortest_iteration = inf
        self.last_finish_time = -inf
        self.ready = False
        self.round = 0
        self.heard_of = False
        self.first_round: int | None = 0  # None until one that joined has begun a round; not in the paper


class StateServer:
    def __init__(self, p: int, epsilon: float) -> None:
        self.epsilon = epsilon
        self.shortest_iteration = inf
        self.records = [Record(rank) for rank in range(p)]
        self.slowest: Record | None = None  # by whom the last query was judged

    def QUERY_STATE(self, r: int, k: int, c: float, t_e: float, now: float) -> bool:
        current = self.record(r)
        current.local_iterations, current.capability, current.last_finish_time = k, c, t_e
        current.heard_of = True
        current.shortest_iteration = min(current.shortest_iteration, c)
        self.shortest_iteration = min(self.shortest_iteration, c)
        slowest = self.slowest = self.FIND_SLOWEST_DEVICE(current)
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

    def FIND_SLOWEST_DEVICE(self, current: Record) -> Record:
        measured = [record for record in self.records if record.capability < inf]
        unmeasured = [record for record in self.records if record.capability == inf]
        longest = max([self.in_epsilons(record.capability) for record in measured], default=0.0)
        equals = [record for record in measured if self.in_epsilons(record.capability) == longest]
        if not equals:
            return unmeasured[0]
        if unmeasured and current.shortest_iteration <= 10 * self.shortest_iteration:
            return unmeasured[0]
        return max(equals, key=self.done)

    def done(self, record: Record) -> float:
        return record.last_finish_time + (0.0 if record.ready else record.capability)

    def in_epsilons(self, capability: float) -> float:
        return round(capability / self.epsilon) if self.epsilon else capability

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
