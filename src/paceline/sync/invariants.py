"""What must always hold, one function each.

A `Watch` stands around a shard: it hands events in, keeps an account of its own from nothing but events and commands,
and asks every invariant after each event. That costs O(1) per message, so a simulation can leave it on. A violation
tells the last events, so that what led to it can be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from paceline.sync.commands import Advance, Apply, Command, Drop, Grant, Hold
from paceline.sync.errors import InvariantViolated
from paceline.sync.events import Event, Joined, Left, Pulled, Pushed, SetModel
from paceline.sync.models.bsp import BSP
from paceline.sync.models.elastic_bsp import ElasticBSP
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP
from paceline.sync.models.pssp import PSSP
from paceline.sync.models.ssp import SSP
from paceline.sync.shard import Shard

STORY = 12  # how many events a violation tells


class Watch:
    """A shard under watch, and the account that the invariants go by.

    The account is brought forward command by command; an invariant sees how things stood before the command it judges.
    """

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.clock = shard.clock
        self.version = shard.version
        self.lives: dict[int, int] = dict.fromkeys(shard.view.workers, 0)  # the live workers' incarnations
        self.starts: dict[int, int] = {}  # since which iteration each worker owes every one
        self.last: dict[int, int] = {}  # the last iteration that it pushed, in this life
        self.waiting: dict[int, set[int]] = {}  # the iterations of each worker's held pulls
        self.held = 0  # how many they are
        self.owed = False  # does the event's message still need its answer?
        self.answered: dict[int, int] = {}  # the last sequence that was answered, in this life of the worker
        self.rounds: dict[int, list[tuple[int, int]]] = {}  # which lives' gradients each open round has summed
        self.summed: set[int] = set()  # the iterations, not before the clock, of which a round has summed gradients
        self.barrier = 0  # the version at the last advance
        self.supersteps: dict[int, tuple[int, int]] = {}  # each worker's superstep, and its first iteration in it
        self.since = 0  # the first iteration that is wholly under the present model
        self._story: deque[tuple[float, Event, list[Command]]] = deque(maxlen=STORY)

    def handle(self, event: Event, now: float) -> list[Command]:
        """Let the shard handle an event, and raise `InvariantViolated` if it did what it must not."""
        commands = self.shard.handle(event, now)
        self._story.append((now, event, commands))
        self._note_event(event, commands)
        for command in commands:
            for invariant in OF_COMMANDS:
                complaint = invariant(self, event, command)
                if complaint:
                    raise self.violated(f"{invariant.__name__}: {complaint}")
            self._note_command(event, command)
        for rule in OF_EVENTS:
            complaint = rule(self)
            if complaint:
                raise self.violated(f"{rule.__name__}: {complaint}")
        return commands

    def violated(self, complaint: str) -> InvariantViolated:
        story = "\n".join(
            f"  {now:g} {event}" + "".join(f"\n      {command}" for command in commands)
            for now, event, commands in self._story
        )
        return InvariantViolated(f"{complaint}\nshard {self.shard.view.index} under {self.shard.model}:\n{story}")

    def is_new(self, push: Pushed) -> bool:
        """Is this the first copy of a push, in a live worker's present life?"""
        return self.lives.get(push.worker) == push.incarnation and sequence(push) > self.answered.get(push.worker, -1)

    def is_waiting(self, pull: Grant | Hold) -> bool:
        return pull.iteration in self.waiting.get(pull.worker, ())

    def _note_event(self, event: Event, commands: list[Command]) -> None:
        self.owed = isinstance(event, Pushed | Pulled)
        match event:
            case Joined(worker, incarnation) if not any(isinstance(command, Drop) for command in commands):
                if self.lives.get(worker) != incarnation:
                    self._forget(worker)
                    self.lives[worker] = incarnation
                    self.starts[worker] = self.shard.view.iteration(worker)
            case Left(worker, incarnation) if incarnation is None or incarnation >= self.lives.get(worker, 0):
                self._forget(worker)
            case SetModel():
                self.since = max(self.since, self.shard.view.fastest, self.clock)  # the fastest may have left
                self.supersteps.clear()

    def _forget(self, worker: int) -> None:
        self.held -= len(self.waiting.pop(worker, ()))
        for account in self.lives, self.starts, self.last, self.answered, self.supersteps:
            account.pop(worker, None)

    def _note_command(self, event: Event, command: Command) -> None:
        if isinstance(event, Pushed | Pulled) and answers(event, command):
            self.owed = False
            if isinstance(event, Pushed) and self.is_new(event):
                if event.iteration != self.last.get(event.worker, -2) + 1:  # it skips what other shards have closed
                    self.starts[event.worker] = event.iteration
                self.last[event.worker] = event.iteration
                self.answered[event.worker] = sequence(event)
        match command:
            case Apply(worker=worker, round=round_):
                if round_ is None:
                    self.version += 1
                else:
                    self.rounds.setdefault(round_, []).append((worker, self.lives[worker]))
                    self.summed.add(command.iteration)
            case Hold() if not self.is_waiting(command):
                self.waiting.setdefault(command.worker, set()).add(command.iteration)
                self.held += 1
            case Grant(worker=worker):
                if self.is_waiting(command):
                    self.waiting[worker].discard(command.iteration)
                    self.held -= 1
                if (
                    command.stop
                    and command.reason.cause != "repeat"
                    and self.supersteps.get(worker, (-1, 0))[0] < command.stop.superstep
                ):
                    self.supersteps[worker] = command.stop.superstep, command.next
            case Advance(to=to):
                self.clock, self.version, self.barrier = to, command.version, command.version
                for round_ in closing(self.rounds, to):
                    del self.rounds[round_]
                self.summed = {iteration for iteration in self.summed if iteration >= to}


def sequence(push: Pushed) -> int:
    return push.iteration if push.sequence is None else push.sequence


def answers(message: Pushed | Pulled, command: Command) -> bool:
    """Is this command the answer to this message?"""
    kinds = Apply | Drop if isinstance(message, Pushed) else Grant | Hold | Drop
    return isinstance(command, kinds) and (command.worker, command.iteration) == (message.worker, message.iteration)


def closing(rounds: dict[int, list[tuple[int, int]]], to: int) -> list[int]:
    return [round_ for round_ in rounds if round_ < to]


# Of single commands.


def no_update_is_applied_twice(watch: Watch, event: Event, command: Command) -> str | None:
    if not isinstance(command, Apply):
        return None
    if not isinstance(event, Pushed) or not answers(event, command):
        return f"{command} applies what did not come"
    return None if watch.is_new(event) else "this gradient was answered before, or is of another life"


def no_update_is_lost(watch: Watch, event: Event, command: Command) -> str | None:
    """A gradient is dropped for a good reason only, and what a round has summed is applied as it closes."""
    if isinstance(command, Drop) and isinstance(event, Pushed) and watch.is_new(event):
        if command.reason.cause not in ("late", "order"):
            return f"a new gradient is dropped as {command.reason.cause}"
        if command.reason.cause == "late" and event.iteration >= watch.clock:
            return f"a gradient of the open round {watch.clock} is dropped as late"
    if isinstance(command, Advance):
        summed = sum(len(watch.rounds[round_]) for round_ in closing(watch.rounds, command.to))
        if summed != command.gradients:
            return f"{summed} gradients were summed into what closes, {command.gradients} are applied"
    return None


def no_pull_is_answered_twice(watch: Watch, event: Event, command: Command) -> str | None:
    if not isinstance(command, Grant) or watch.is_waiting(command):
        return None
    if not (isinstance(event, Pulled) and answers(event, command) and watch.owed):
        return f"nobody waits for {command}"
    return None


def versions_never_go_back(watch: Watch, event: Event, command: Command) -> str | None:
    if isinstance(command, Advance):
        if command.iteration != watch.clock or command.to < watch.clock + (not watch.shard.model.supersteps):
            return f"the clock goes from {watch.clock} to {command.to}"
        if command.version < watch.version:
            return f"the version goes from {watch.version} to {command.version}"
    if isinstance(command, Grant) and (command.version, command.clock) != (watch.version, watch.clock):
        return f"a grant is of version {command.version} at {command.clock}, not {watch.version} at {watch.clock}"
    return None


def ssp_bounds_the_gap(watch: Watch, event: Event, command: Command) -> str | None:
    """Under `ssp(s)` nobody is answered that is `s` or more ahead of the clock; `bsp` is `ssp(0)`."""
    model = watch.shard.model
    if isinstance(command, Grant) and isinstance(model, SSP | BSP) and command.reason.cause != "repeat":
        s = model.s if isinstance(model, SSP) else 0
        if command.iteration >= watch.clock + s:
            return f"iteration {command.iteration} is answered at clock {watch.clock}, {s} ahead at most"
    return None


def pssp_never_holds_below_s(watch: Watch, event: Event, command: Command) -> str | None:
    model = watch.shard.model
    if isinstance(command, Hold) and isinstance(model, PSSP) and command.reason.cause == "ahead":
        if command.iteration < watch.clock + model.s:
            return f"iteration {command.iteration} is held at clock {watch.clock}"
    return None


def elastic_stops_are_within_r(watch: Watch, event: Event, command: Command) -> str | None:
    model = watch.shard.model
    if not isinstance(command, Grant) or command.reason.cause == "repeat":
        return None
    if command.stop and isinstance(model, ElasticBSP):
        superstep, begin = watch.supersteps.get(command.worker, (-1, 0))
        if command.stop.superstep != superstep:
            begin = command.next
        if not begin <= command.stop.iteration < begin + model.R:
            return f"worker {command.worker} starts at {begin} and stops after {command.stop.iteration}"
    return None


def elastic_barriers_show_one_version(watch: Watch, event: Event, command: Command) -> str | None:
    """Whoever waited at the barrier goes on from the same parameters."""
    if isinstance(command, Grant) and isinstance(watch.shard.model, ElasticBSP) and command.reason.cause == "closed":
        if command.version != watch.barrier:
            return f"version {command.version}, but the barrier was at version {watch.barrier}"
    return None


def no_iteration_is_half_summed(watch: Watch, event: Event, command: Command) -> str | None:
    if isinstance(command, Apply) and command.round is None and command.iteration in watch.summed:
        return f"a gradient of {command.iteration} is applied at once, but others of that iteration were summed"
    return None


def psp_rounds_never_mix(watch: Watch, event: Event, command: Command) -> str | None:
    """A gradient goes into the open round, which is not newer than itself."""
    if isinstance(command, Apply) and command.round is not None and isinstance(watch.shard.model, PSP):
        if command.round != watch.clock or command.iteration < watch.clock:
            return f"a gradient of {command.iteration} goes into round {command.round} while {watch.clock} is open"
    return None


def esync_takes_one_contribution_each(watch: Watch, event: Event, command: Command) -> str | None:
    if isinstance(command, Advance) and isinstance(watch.shard.model, ESync):
        for round_ in closing(watch.rounds, command.to):
            if round_ < watch.since:
                continue
            given = watch.rounds[round_]
            if len(set(given)) != len(given):
                return f"round {round_} has two contributions of one worker"
            expected = {life for life in watch.lives.items() if watch.starts.get(life[0], 0) <= round_}
            if not expected <= set(given):
                return f"round {round_} closes without {expected - set(given)}"
    return None


# Of whole events.


def every_message_is_answered(watch: Watch) -> str | None:
    return "the message got no answer" if watch.owed else None


def no_pull_is_forgotten(watch: Watch) -> str | None:
    return (
        None if watch.held == watch.shard.waiting else f"{watch.held} pulls wait, the shard knows {watch.shard.waiting}"
    )


OF_COMMANDS = (
    no_update_is_applied_twice,
    no_update_is_lost,
    no_pull_is_answered_twice,
    versions_never_go_back,
    ssp_bounds_the_gap,
    pssp_never_holds_below_s,
    elastic_stops_are_within_r,
    elastic_barriers_show_one_version,
    no_iteration_is_half_summed,
    psp_rounds_never_mix,
    esync_takes_one_contribution_each,
)
OF_EVENTS = (every_message_is_answered, no_pull_is_forgotten)


# Of a whole cluster.


def nothing_waits_in_vain(watches: Iterable[Watch]) -> None:
    """Liveness: when every live worker waits and no message or timer is under way, no pull may be held."""
    for watch in watches:
        if watch.shard.waiting:
            held = ", ".join(f"worker {pull.worker} at {pull.iteration}" for pull in watch.shard.held)
            raise watch.violated(f"nothing_waits_in_vain: nothing is under way, but held are {held}")
