"""A shard once more, plainly: it keeps everything in lists, counts everything anew, and says what must be answered.

It shares no code with `paceline.sync.shard` or the models. The judge hands it the events that the shard was handed, and
compares line by line.
"""

from __future__ import annotations

from typing import Any

from paceline.sim.judge.rules import RULES, Rule
from paceline.sync.commands import Advance, Apply, Command, Drop, Grant, Hold, SetTimer
from paceline.sync.events import Event, Joined, Left, Pulled, Pushed, SetModel, Stop, TimerFired
from paceline.sync.expression import parse
from paceline.sync.models.base import Model

Line = tuple[Any, ...]


class Waiting:
    """A held pull, and the round whose closing frees it."""

    def __init__(self, pull: Pulled, since: float, under: int) -> None:
        self.pull = pull
        self.since = since
        self.under = under


class Account:
    """One life of one worker."""

    def __init__(self, worker: int, incarnation: int, start: int, version: int, came: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.start = start
        self.next = start
        self.came = came  # the latest comer into an iteration has the greatest
        self.seen = version
        self.granted = -2
        self.granted_at: float | None = None
        self.intervals: list[float] = []
        self.significance = 0.0
        self.answers: dict[int, str] = {}  # what each push was answered with, by sequence
        self.stop: Stop | None = None
        self.told: Stop | None = None
        self.held: list[Waiting] = []


class Reference:
    """What one shard must answer."""

    def __init__(self, model: Model | str, workers: int, seed: int, index: int) -> None:
        self.members: dict[int, Account] = {}
        self.clock = self.version = self.epoch = 0
        self.fastest = 0
        self.now = float("-inf")
        self.seed, self.index = seed, index
        self._comings = 0
        self._gone: dict[int, int] = {}
        self._sums: dict[int, int] = {}
        self._iterations_summed = {-1}
        self._timer = 0
        self._alarm: float | None = None
        for worker in range(workers):
            self._add(worker, 0, 0)
        self._sums_from: list[tuple[int, bool]] = []
        self._adopt(parse(model))

    def handle(self, event: Event, now: float) -> list[Line]:
        self.now = max(self.now, now)
        match event:
            case Pushed():
                out = self._pushed(event)
            case Pulled():
                out = self._pulled(event)
            case Joined():
                out = self._joined(event)
            case Left():
                out = self._left(event)
            case TimerFired(timer):
                if timer == self._timer:
                    self._alarm = None
                out = self._settle([], "timer")
            case SetModel(model):
                out = self._set_model(parse(model))
        self.fastest = max((account.next for account in self.members.values()), default=self.fastest)
        return out

    @property
    def slowest(self) -> int:
        return min((account.next for account in self.members.values()), default=0)

    def held(self) -> list[tuple[int, int]]:
        return sorted((a.worker, waiting.pull.iteration) for a in self.members.values() for waiting in a.held)

    def laggards(self) -> list[Account]:
        """Who is in the open round, or else the slowest; the latest comer first."""
        there = [a for a in self.members.values() if a.next == self.clock]
        there = there or [a for a in self.members.values() if a.next == self.slowest]
        return sorted(there, key=lambda account: -account.came)

    # Messages.

    def _pushed(self, push: Pushed) -> list[Line]:
        account, i = self.members.get(push.worker), push.iteration
        if account is None or account.incarnation != push.incarnation:
            return [self._refused(push)]
        sequence = i if push.sequence is None else push.sequence
        if account.answers and sequence <= max(account.answers):
            return [("drop", push.worker, i, "repeat", account.answers.get(sequence, "applied"))]
        if i < account.next:
            return [("drop", push.worker, i, "order", None)]
        account.significance, account.told = push.significance, push.stop
        if account.granted_at is not None:
            if self.rule.intervals:
                account.intervals = [*account.intervals, self.now - account.granted_at][-self.rule.intervals :]
            account.granted_at = None
        self._move(account, i + 1)
        self.rule.pushed(push)
        summed = self._is_summed(i)
        if summed and i < self.clock:
            account.answers[sequence] = "dropped"
            return self._settle([("drop", push.worker, i, "late", None)], "complete")
        account.answers[sequence] = "applied"
        staleness, round_ = self.version - account.seen, self.rule.round(push) if summed else None
        if round_ is None:
            self.version += 1
        else:
            self._sums[round_] = self._sums.get(round_, 0) + 1
            self._iterations_summed.add(i)
        return self._settle([("apply", push.worker, i, staleness, round_)], "complete")

    def _pulled(self, pull: Pulled) -> list[Line]:
        account, i = self.members.get(pull.worker), pull.iteration
        if account is None or account.incarnation != pull.incarnation:
            return [self._refused(pull)]
        if any(waiting.pull.iteration == i for waiting in account.held):
            return [self._hold(pull, "repeat")]
        if i <= account.granted:
            return [self._grant(account, i, "repeat")]
        if self.rule.may_pull(pull):
            return [self._grant(account, i, "open")]
        account.held.append(Waiting(pull, self.now, max(self.clock, self.rule.filed(pull))))
        return [self._hold(pull, "ahead")]

    def _refused(self, message: Pushed | Pulled) -> Line:
        account = self.members.get(message.worker)
        newest = self._gone.get(message.worker, -1) if account is None else account.incarnation - 1
        cause = "zombie" if message.incarnation <= newest else "stranger"
        return ("drop", message.worker, message.iteration, cause, None)

    # Membership and models.

    def _joined(self, event: Joined) -> list[Line]:
        account = self.members.get(event.worker)
        if account is not None and account.incarnation == event.incarnation:
            return []
        newest = self._gone.get(event.worker, -1) if account is None else account.incarnation
        if event.incarnation <= newest:
            return [("drop", event.worker, -1, "zombie", None)]
        out = self._left(Left(event.worker)) if account is not None else []
        self._add(event.worker, event.incarnation, max(self.clock, self.slowest, event.iteration or 0))
        self.rule.joined(event.worker)
        return out

    def _left(self, event: Left) -> list[Line]:
        worker, account = event.worker, self.members.get(event.worker)
        if event.incarnation is not None:
            self._gone[worker] = max(event.incarnation, self._gone.get(worker, -1))
            if account is not None and event.incarnation < account.incarnation:
                return []
        if account is None:
            return []
        self._gone[worker] = max(account.incarnation, self._gone.get(worker, -1))
        del self.members[worker]
        self.rule.left(worker)
        return self._settle([], "left")

    def _set_model(self, model: Model) -> list[Line]:
        self.epoch += 1
        self._adopt(model)
        waiting = [(held, account) for account in self.members.values() for held in account.held]
        for account in self.members.values():
            account.held = []
        out = self._settle([], "model")
        for held, account in sorted(waiting, key=lambda one: one[0].since):
            if self.rule.may_pull(held.pull):
                out.append(self._grant(account, held.pull.iteration, "model"))
            else:
                held.under = max(self.clock, self.rule.filed(held.pull))
                account.held.append(held)
        return out

    def _adopt(self, model: Model) -> None:
        self.rule: Rule = RULES[model.name](model, self)
        self._alarm = None
        if not self._sums_from:
            self._sums_from = [(0, self.rule.sums)]
        elif self._sums_from[-1][1] != self.rule.sums:
            fresh = max(self.fastest, self.clock, max(self._iterations_summed) + 1)
            self._sums_from = [known for known in self._sums_from if known[0] < fresh] + [(fresh, self.rule.sums)]

    def _is_summed(self, i: int) -> bool:
        return [sums for since, sums in self._sums_from if since <= i][-1]

    # Rounds.

    def _settle(self, out: list[Line], cause: str) -> list[Line]:
        rule = self.rule
        while self.members and (rule.supersteps or self._past() or self.clock in self._sums) and rule.may_close():
            self._close(out, cause)
        at = rule.wake()
        if at is not None and at != self._alarm and at > self.now:
            self._timer += 1
            out.append(("timer", at, self._timer))
        self._alarm = at
        return out

    def _past(self) -> list[int]:
        return [account.next for account in self.members.values() if account.next > self.clock]

    def _close(self, out: list[Line], cause: str) -> None:
        closing, missing = self.clock, len(self.members) - len(self._past())
        to = max(closing, self.slowest) if self.rule.supersteps else min(self._past(), default=closing + 1)
        summed = [round_ for round_ in self._sums if round_ < to]
        gradients = sum(self._sums.pop(round_) for round_ in summed)
        self.version += len(summed)
        self.clock = to
        self.epoch += 1
        self.rule.closed()
        out.append(("advance", closing, to, gradients, self.version, cause, missing))
        for account in self.members.values():
            for held in list(account.held):
                if self._is_freed(held, to):
                    account.held.remove(held)
                    out.append(self._grant(account, held.pull.iteration, "closed"))

    def _is_freed(self, held: Waiting, to: int) -> bool:
        if not self.rule.supersteps:
            return held.under < to
        return self.index == 0 or self.rule.may_pull(held.pull)

    # Single steps.

    def _add(self, worker: int, incarnation: int, start: int) -> None:
        self._comings += 1
        self.members[worker] = Account(worker, incarnation, start, self.version, self._comings)

    def _move(self, account: Account, to: int) -> None:
        self._comings += 1
        account.next, account.came = to, self._comings
        self.fastest = max(other.next for other in self.members.values())

    def _grant(self, account: Account, i: int, cause: str) -> Line:
        account.seen, account.granted_at = self.version, self.now
        if i > account.granted:
            account.granted = i
            account.stop = self.rule.stop(account.worker)
        onward = max(i + 1, account.start, self.clock if self.rule.jumps else 0)
        life = account.incarnation
        return ("grant", account.worker, i, self.version, self.clock, onward, cause, account.stop, life)

    def _hold(self, pull: Pulled, cause: str) -> Line:
        return ("hold", pull.worker, pull.iteration, cause, pull.iteration - self.clock, len(self.rule.missing()))


def line(command: Command) -> Line:
    """A command of the core's as this page writes it."""
    why = command.reason
    match command:
        case Apply():
            return ("apply", command.worker, command.iteration, command.staleness, command.round)
        case Drop():
            return ("drop", command.worker, command.iteration, why.cause, command.answer)
        case Grant(worker, iteration, version, clock, onward, _, stop, life):
            return ("grant", worker, iteration, version, clock, onward, why.cause, stop, life)
        case Hold():
            return ("hold", command.worker, command.iteration, why.cause, why.gap, why.missing)
        case Advance(closing, to, gradients, version):
            return ("advance", closing, to, gradients, version, why.cause, why.missing)
        case SetTimer():
            return ("timer", command.at, command.timer)
