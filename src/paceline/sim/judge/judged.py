"""A shard and a worker under the eyes of a judge: the core does the work, and a plain copy of the rules checks it.

`JudgedShard` hands each event to a watched shard, whose invariants are asked, and to its `Reference`; what the two
answer must be the same, line by line, and so must be what they know of the workers. `JudgedWorker`, `JudgedSteps` and
`JudgedStateServer` do the same with the other machines. All raise `InvariantViolated`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paceline.sim.judge.doubles import Asking, Rounds, Waits
from paceline.sim.judge.reference import Line, Reference, line
from paceline.sim.judge.rules import RULES
from paceline.sync import Command, Event, Grant, Hold, InvariantViolated, Pulled, Pushed, Shard, Stop, parse
from paceline.sync.events import SetModel, TimerFired
from paceline.sync.invariants import Watch
from paceline.sync.local_steps import Action, LocalSteps
from paceline.sync.models.esync import ESync
from paceline.sync.partial_pull import Arrived, Asked, SetPullTimer, Start
from paceline.sync.state_server import Answer, StateServer
from paceline.sync.worker import Message, Worker


class JudgedShard:
    """A shard, its watch, and its reference; under a model of the user's own the watch alone."""

    def __init__(self, shard: Shard, workers: int, seed: int) -> None:
        self.watch = Watch(shard)
        self.shard = shard
        known = shard.model.name in RULES
        self._reference = Reference(shard.model, workers, seed, shard.view.index) if known else None

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = self.watch.handle(event, now)
        if isinstance(event, SetModel) and parse(event.model).name not in RULES:
            self._reference = None
        if self._reference is not None:
            expected = self._reference.handle(event, now)
            self._compare_answers([line(command) for command in commands], expected)
            self._compare_accounts(self._reference, event)
            self._check_names(self._reference, commands)
        return commands

    def _compare_answers(self, said: list[Line], expected: list[Line]) -> None:
        for mine, other in zip(_in_any_order(said), _in_any_order(expected), strict=False):
            if mine != other:
                raise self.watch.violated(f"the_rules_decide: the shard says {mine}, the rules say {other}")
        if len(said) != len(expected):
            raise self.watch.violated(f"the_rules_decide: the shard says {said}, the rules say {expected}")

    def _compare_accounts(self, reference: Reference, event: Event) -> None:
        """Who is where, and who waits."""
        shard, view = self.shard, self.shard.view
        mine: list[Any] = [shard.clock, shard.version, view.live, sorted((p.worker, p.iteration) for p in shard.held)]
        other: list[Any] = [reference.clock, reference.version, len(reference.members), reference.held()]
        if reference.members:
            mine += [view.slowest, view.fastest, view.count(view.clock)]
            past = sum(account.next > reference.clock for account in reference.members.values())
            other += [reference.slowest, reference.fastest, past]
        account = reference.members.get(event.worker) if isinstance(event, Pushed) else None
        if account is not None:
            mine += [view.iteration(account.worker), list(view.intervals(account.worker))]
            other += [account.next, account.intervals]
        if mine != other:
            raise self.watch.violated(f"progress_is_counted_right: the shard has {mine}, a recount gives {other}")

    def _check_names(self, reference: Reference, commands: Iterable[Command]) -> None:
        """Who is named as waited for is waited for."""
        for command in commands:
            if isinstance(command, Hold):
                missing = {account.worker for account in reference.laggards()} | set(reference.rule.missing())
                if not set(command.reason.waiting_for) <= missing:
                    raise self.watch.violated(f"who_is_waited_for_is_missing: {command}, missing are {missing}")


def _in_any_order(lines: list[Line]) -> list[Line]:
    """The same lines, with grants that follow each other sorted: their order among each other is free."""
    ordered: list[Line] = []
    grants: list[Line] = []
    for one in lines:
        if one[0] == "grant":
            grants.append(one)
        else:
            ordered += [*sorted(grants, key=repr), one]
            grants = []
    return ordered + sorted(grants, key=repr)


class JudgedWorker:
    """A worker's machine, and what it must send and wait for."""

    def __init__(self, worker: int, shards: int, incarnation: int, b: float, tau: float) -> None:
        self._machine = Worker(worker, shards, incarnation=incarnation, b=b, tau=tau)
        self._waits = Waits(shards, b, tau)
        self._shards = shards
        self._iteration = -1
        self._stop: Stop | None = None

    @property
    def iteration(self) -> int:
        return self._machine.iteration

    def begin(self, now: float) -> list[Message]:
        self._waits.handle(Asked(-1), now)
        messages = self._machine.begin(now)
        who = self._machine
        pulls = [(shard, Pulled(who.worker, -1, who.incarnation)) for shard in range(self._shards)]
        _same("worker_sends_what_it_owes", messages, pulls, who)
        return messages

    def computed(self, now: float, significance: float) -> tuple[list[Message], list[Start | SetPullTimer]]:
        who, i = self._machine, self._iteration
        messages, decisions = who.computed(now, significance)
        push = Pushed(who.worker, i, who.incarnation, None, significance, self._stop)
        pull = Pulled(who.worker, i, who.incarnation, self._stop)
        owed = [(shard, message) for message in (push, pull) for shard in range(self._shards)]
        _same("worker_sends_what_it_owes", messages, owed, who)
        return messages, self._decided(decisions, self._waits.handle(Asked(i), now))

    def granted(self, shard: int, grant: Grant, now: float) -> list[Start | SetPullTimer]:
        if shard == 0:
            self._stop = grant.stop
        decisions = self._machine.granted(shard, grant, now)
        return self._decided(decisions, self._waits.handle(Arrived(shard, grant.next), now))

    def timer_fired(self, timer: int, now: float) -> list[Start | SetPullTimer]:
        return self._decided(self._machine.timer_fired(timer, now), self._waits.handle(TimerFired(timer), now))

    def _decided(
        self, decisions: list[Start | SetPullTimer], expected: list[Start | SetPullTimer]
    ) -> list[Start | SetPullTimer]:
        _same("worker_waits_for_its_share", decisions, expected, self._machine)
        for decision in decisions:
            if isinstance(decision, Start):
                self._iteration = decision.iteration
        return decisions


class JudgedSteps:
    """A worker's local steps, and what they must be."""

    def __init__(self, model: ESync) -> None:
        self._machine = LocalSteps(model)
        self._rounds = Rounds(model)

    def handle(self, event: Any, now: float) -> list[Action]:
        actions = self._machine.handle(event, now)
        _same("local_steps_follow_the_answers", actions, self._rounds.handle(event, now), event)
        return actions


class JudgedStateServer:
    """The State Server, and what it must answer."""

    def __init__(self, model: ESync, workers: int) -> None:
        self._machine = StateServer(model, workers)
        self._asking = Asking(model, workers)

    def handle(self, event: Any, now: float) -> list[Answer]:
        answers = self._machine.handle(event, now)
        _same("state_server_answers_by_the_slowest", answers, self._asking.handle(event, now), event)
        return answers


def _same(rule: str, said: list[Any], expected: list[Any], of: Any) -> None:
    if said != expected:
        who = f"worker {of.worker}, life {of.incarnation}" if isinstance(of, Worker) else str(of)
        raise InvariantViolated(f"{rule}: {who}: it says {said}, the rules say {expected}")
