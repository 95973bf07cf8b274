"""The machine of one shard: events in, commands out.

FluentPS's insight is the whole of it: a synchronization model is a pull condition and a push condition over a shard's
progress. With `V` the round that is not closed yet:

    a pull with progress i      if the pull condition holds, grant it; else hold it, filed under a round
    a push with progress i      hand the gradient to the update rule; the worker is past i now; while the push condition
                                holds for V: close it, release what is filed under it, and go to the next round

Whatever else happens (a worker comes or goes, a timer fires, the model is changed) ends with the same loop. The machine
reads no clock, draws no random number and does no I/O; it knows no tensor. The simulator, the tests and the real
servers drive this very class, and the same events at the same times give the same commands everywhere.

Nothing that a remote worker sends makes it raise. What cannot be used is answered with a `Drop` that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from paceline.sync.commands import Advance, Apply, Cause, Command, Drop, Grant, Hold, Reason, SetTimer
from paceline.sync.errors import EventError
from paceline.sync.events import Event, Joined, Left, Pulled, Pushed, SetModel, TimerFired
from paceline.sync.expression import parse
from paceline.sync.models.base import Model, UpdateRule
from paceline.sync.progress import Held, Member, Progress
from paceline.sync.view import View

Answer = Literal["applied", "dropped"]

REMEMBERED_DROPS = 64  # how many late pushes of a worker are remembered, to answer a repeat the same


class Counters(Struct):
    """What a shard has done so far."""

    pushes: int = 0
    pulls: int = 0
    held_pulls: int = 0
    dropped: int = 0  # gradients that came too late
    repeated: int = 0  # messages that had been answered before
    refused: int = 0  # messages of strangers, zombies, or out of order
    advances: int = 0


class Shard:
    """One slice of the parameters with its own clock, under one synchronization model.

    `workers` is how many start, or who. `seed` is for the coins of probabilistic models and must be the same on all
    shards; `index` tells them apart, and shard 0 plans where a model needs one plan for all. `update` overrides how the
    model's gradients reach the parameters.
    """

    def __init__(
        self,
        model: Model | str,
        workers: int | Iterable[int],
        seed: int = 0,
        *,
        index: int = 0,
        update: UpdateRule | None = None,
    ) -> None:
        self.version = 0  # how many updates the parameters have had
        self.waiting = 0  # how many pulls are held
        self.counters = Counters()
        self._progress = Progress()
        self.view = View(self._progress, seed, index)
        self._filed: dict[int, dict[Held, Member]] = {}  # what is freed by the closing of each round
        self._sums: dict[int, int] = {}  # how many gradients each open round has summed
        self._summed = 0  # the first iteration of which, as of all later ones, no gradient was summed
        self._starts: dict[int, int] = {}  # the first iteration of each worker that joined later
        self._late: dict[int, set[int]] = {}  # sequences of each worker's late pushes, to answer a repeat the same
        self._gone: dict[int, int] = {}  # the last incarnation of each worker that left
        self._update = update
        self._rules: list[tuple[int, UpdateRule]] = []  # from which iteration on which update rule holds
        self._timer = 0
        self._alarm: float | None = None
        self._handlers: dict[type, Callable[[Any], list[Command]]] = {
            Pushed: self._pushed,
            Pulled: self._pulled,
            Joined: self._joined,
            Left: self._left,
            TimerFired: self._timer_fired,
            SetModel: self._set_model,
        }
        for worker in range(workers) if isinstance(workers, int) else workers:
            if type(worker) is not int or worker < 0 or worker in self._progress.members:
                raise EventError(f"worker {worker!r} cannot be; workers are different whole numbers from 0")
            self._progress.add(worker, 0, 0, 0)
        self._adopt(parse(model))

    @property
    def clock(self) -> int:
        """`V`, the round that is not closed yet."""
        return self._progress.clock

    @property
    def held(self) -> list[Pulled]:
        """The pulls that wait for an answer."""
        return [held.pull for member in self._progress.members.values() for held in member.waiting()]

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event in and say what is to be done, in this order. Time that goes back counts as standing still."""
        handler = self._handlers.get(type(event))
        if handler is None:
            raise EventError(f"{event!r} is no event; a shard takes Pushed, Pulled, Joined, Left, TimerFired, SetModel")
        self.view._at(now)
        return handler(event)

    # What workers send.

    def _pushed(self, push: Pushed) -> list[Command]:
        self.counters.pushes += 1
        worker, i, progress = push.worker, push.iteration, self._progress
        member = progress.members.get(worker)
        if member is None or member.incarnation != push.incarnation:
            return [self._refuse(push, member)]
        sequence = i if push.sequence is None else push.sequence
        if sequence <= member.sequence:
            self.counters.repeated += 1
            first: Answer = "dropped" if sequence in self._late.get(worker, ()) else "applied"
            return [Drop(worker, i, Reason(self._rule, "repeat"), first)]
        if i < member.next:
            return [self._refuse(push, member)]
        member.sequence = sequence
        member.significance = push.significance
        member.told = push.stop
        if member.granted_at is not None:
            if self._timing:
                member.time(self.view.now - member.granted_at, self._timing)
            member.granted_at = None
        progress.move(member, i + 1)
        if self._listens:
            self.model.pushed(self.view, push)
        summed = self._sums_up(i)
        if summed and i < progress.clock:
            return self._settle([self._drop_late(push, sequence)], "complete", worker)
        staleness, into = self.version - member.seen, None
        if summed:
            into = self.model.round(self.view, push)
            self._sums[into] = self._sums.get(into, 0) + 1
            if i >= self._summed:
                self._summed = i + 1
        else:
            self.version += 1
        return self._settle([Apply(worker, i, staleness, self._fresh, into)], "complete", worker)

    def _pulled(self, pull: Pulled) -> list[Command]:
        self.counters.pulls += 1
        worker, i = pull.worker, pull.iteration
        member = self._progress.members.get(worker)
        if member is None or member.incarnation != pull.incarnation or i < -1:
            return [self._refuse(pull, member)]
        if member.held is not None and i in [held.pull.iteration for held in member.waiting()]:
            self.counters.repeated += 1
            return [Hold(worker, i, self._why_held(i, "repeat"))]
        if i <= member.granted:
            self.counters.repeated += 1
            return [self._grant(member, i, Reason(self._rule, "repeat"))]
        if self.model.may_pull(self.view, pull):
            return [self._grant(member, i, self._open)]
        self.counters.held_pulls += 1
        self.waiting += 1
        held = member.held = Held(pull, self.view.now, member.held)
        self._file(held, member)
        return [Hold(worker, i, self._why_held(i, "ahead"))]

    # What the rest of the world sends.

    def _joined(self, event: Joined) -> list[Command]:
        worker, incarnation, progress = event.worker, event.incarnation, self._progress
        member = progress.members.get(worker)
        if member is not None and member.incarnation == incarnation:
            return []
        if incarnation <= (self._gone.get(worker, -1) if member is None else member.incarnation):
            self.counters.refused += 1
            return [Drop(worker, -1, Reason(self._rule, "zombie"))]
        commands = self._left(Left(worker)) if member is not None else []
        start = max(progress.clock, progress.slowest if progress.members else 0, event.iteration or 0)
        progress.add(worker, incarnation, start, self.version)
        if start > 0:
            self._starts[worker] = start
        self.model.joined(self.view, worker)
        return commands

    def _left(self, event: Left) -> list[Command]:
        member = self._progress.members.get(event.worker)
        if event.incarnation is not None:  # it may be heard of before the worker has joined
            self._gone[event.worker] = max(event.incarnation, self._gone.get(event.worker, -1))
            if member is not None and event.incarnation < member.incarnation:
                return []
        if member is None:
            return []
        self._remove(member)
        return self._settle([], "left", event.worker)

    def _timer_fired(self, event: TimerFired) -> list[Command]:
        if event.timer == self._timer:
            self._alarm = None
        return self._settle([], "timer", None)

    def _set_model(self, event: SetModel) -> list[Command]:
        model = parse(event.model)
        self.view._next_epoch()
        self._adopt(model)
        waiting = [(held, member) for member in self._progress.members.values() for held in member.waiting()]
        waiting.sort(key=lambda filed: filed[0].since)
        self._filed.clear()
        commands = self._settle([], "model", None)
        reason = Reason(self._rule, "model")
        for held, member in waiting:
            if self.model.may_pull(self.view, held.pull):
                commands.append(self._release(held, member, reason))
            else:
                self._file(held, member)
        return commands

    # Rounds.

    def _settle(self, commands: list[Command], cause: Cause, worker: int | None) -> list[Command]:
        """Close what can be closed, and ask to be woken where the model waits for a time."""
        progress, model, view = self._progress, self.model, self.view
        while progress.members and (progress.clock < progress.fastest or self._is_begun()) and model.may_close(view):
            self._close(commands, cause, () if worker is None else (worker,))
        if self._wakes:
            at = model.wake(view)
            if at is not None and at != self._alarm and at > view.now:
                self._timer += 1
                missing, waiting_for = model.waiting_for(view)
                commands.append(SetTimer(at, self._timer, Reason(self._rule, "timeout", 0, missing, waiting_for)))
            self._alarm = at
        return commands

    def _is_begun(self) -> bool:
        """Nobody is past the open round. Has it something to close: a gradient of somebody who has gone since?"""
        return self.model.supersteps or self._progress.clock in self._sums

    def _close(self, commands: list[Command], cause: Cause, awaited: tuple[int, ...]) -> None:
        progress = self._progress
        closing = progress.clock
        to = max(closing, progress.slowest) if self.model.supersteps else progress.next_round()
        missing = len(progress.members) - progress.passed
        gradients = 0
        for round_ in _below(self._sums, closing, to):
            gradients += self._sums.pop(round_)
            self.version += 1
        progress.advance(to)
        self.counters.advances += 1
        self.view._next_epoch()
        self.model.closed(self.view)
        reason = Reason(self._rule, cause, 0, missing, awaited)
        commands.append(Advance(closing, to, gradients, self.version, reason))
        released = Reason(self._rule, "closed", 0, 0, awaited)
        barrier = self.model.supersteps
        early = barrier and self.view.index > 0  # a shard that does not plan may hold someone for a later barrier
        for round_ in list(self._filed) if barrier else _below(self._filed, closing, to):
            for held, member in self._filed.pop(round_).items():
                if member.held is None:  # it has left
                    continue
                if early and not self.model.may_pull(self.view, held.pull):
                    self._file(held, member)
                else:
                    commands.append(self._release(held, member, released))

    # Single steps.

    def _grant(self, member: Member, i: int, reason: Reason) -> Grant:
        version, clock = self.version, self._progress.clock
        member.seen = version
        member.granted_at = self.view.now
        if i > member.granted:
            member.granted = i
            member.stop = self.model.stop(self.view, member.worker) if self._plans else None
        onward = max(i + 1, self._starts.get(member.worker, 0)) if self._starts else i + 1
        if self.model.jumps and onward < clock:
            onward = clock
        return Grant(member.worker, i, version, clock, onward, reason, member.stop, member.incarnation)

    def _release(self, held: Held, member: Member, reason: Reason) -> Grant:
        member.answer(held)
        self.waiting -= 1
        return self._grant(member, held.pull.iteration, reason)

    def _file(self, held: Held, member: Member) -> None:
        under = max(self.model.filed(self.view, held.pull), self._progress.clock)
        self._filed.setdefault(under, {})[held] = member

    def _why_held(self, i: int, cause: Cause) -> Reason:
        missing, waiting_for = self.model.waiting_for(self.view)
        return Reason(self._rule, cause, i - self._progress.clock, missing, waiting_for)

    def _drop_late(self, push: Pushed, sequence: int) -> Drop:
        self.counters.dropped += 1
        late = self._late.setdefault(push.worker, set())
        late.add(sequence)
        if len(late) > REMEMBERED_DROPS:
            late.remove(min(late))
        return Drop(push.worker, push.iteration, Reason(self._rule, "late", push.iteration - self._progress.clock))

    def _refuse(self, message: Pushed | Pulled, member: Member | None) -> Drop:
        self.counters.refused += 1
        cause: Cause = "order"
        if member is None:
            cause = "zombie" if message.incarnation <= self._gone.get(message.worker, -1) else "stranger"
        elif message.incarnation != member.incarnation:
            cause = "zombie" if message.incarnation < member.incarnation else "stranger"
        return Drop(message.worker, message.iteration, Reason(self._rule, cause))

    def _remove(self, member: Member) -> None:
        self._gone[member.worker] = max(member.incarnation, self._gone.get(member.worker, -1))
        self._starts.pop(member.worker, None)
        self._late.pop(member.worker, None)
        self.waiting -= len(member.waiting())
        self._progress.remove(member)
        self.model.left(self.view, member.worker)

    def _sums_up(self, i: int) -> bool:
        """Is the gradient of iteration `i` summed into a round, rather than applied at once?"""
        for since, rule in reversed(self._rules):
            if i >= since:
                return rule == "round"
        return False

    def _adopt(self, model: Model) -> None:
        """Put a model in force.

        Where it brings another update rule, that starts with the first iteration that nobody has pushed yet, so that no
        round is half summed and half applied at once. Those who have left count if theirs was summed.
        """
        kind = type(model)
        self.model = model
        self._rule = str(model)
        self._open, self._fresh = Reason(self._rule, "open"), Reason(self._rule, "fresh")
        self._listens, self._wakes = kind.pushed is not Model.pushed, kind.wake is not Model.wake
        self._plans, self._timing = kind.stop is not Model.stop, model.intervals
        self._alarm = None
        self.view.memory = model.memory(self.view)
        rule = self._update or model.update
        if not self._rules:
            self._rules = [(0, rule)]
        elif self._rules[-1][1] != rule:
            fresh = max(self._progress.fastest, self._progress.clock, self._summed)
            self._rules = [known for known in self._rules if known[0] < fresh] + [(fresh, rule)]


def _below(rounds: dict[int, Any], first: int, end: int) -> list[int]:
    """Which of these rounds are closing, in order. None of them is before `first`."""
    if end == first + 1:
        return [first] if first in rounds else []
    return sorted(round_ for round_ in rounds if round_ < end)
