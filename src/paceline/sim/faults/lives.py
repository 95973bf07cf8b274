"""One life of one worker in a storm: its machine, its work, and its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from paceline.sim.faults.links import Link
from paceline.sim.judge.judged import JudgedSteps, JudgedWorker
from paceline.sync import Apply, Drop, Grant, Joined, Pulled, Pushed
from paceline.sync.local_steps import Action, Answered, Contribute, Query, RoundBegan, ServerLost, Step, StepDone
from paceline.sync.partial_pull import SetPullTimer, Start
from paceline.sync.state_server import Began, Queried
from paceline.sync.worker import Message

if TYPE_CHECKING:
    from paceline.sim.faults.storm import Storm

TICK = 1e-6  # a timer takes so long at least, so that one which fires a rounding too early does not fire for ever


class Life:
    """A worker from its start to its death or to the end of its work; `incarnation` tells lives of one apart."""

    def __init__(self, storm: Storm, worker: int, incarnation: int, iteration: int | None) -> None:
        plan = storm.plan
        self.storm = storm
        self.worker = worker
        self.incarnation = incarnation
        self.alive = True
        self.declared = False  # does the coordinator take it for dead?
        self.frozen = -inf  # it does nothing until then
        self.silent = -inf  # nobody hears of it until then
        self.offset = 0.0  # by how much its clock is off
        self.machine = JudgedWorker(worker, plan.shards, incarnation, plan.b, plan.tau)
        self.steps: JudgedSteps | None = None
        self._step = 0  # which local iteration is under way; one that was given up never ends
        self._sequence = 0
        joined = Joined(worker, incarnation, iteration)
        self.links = [self._link(server, joined) for server in range(plan.servers + 1)]  # the last: the State Server

    @property
    def clock(self) -> float:
        return self.storm.now + self.offset

    def begin(self, *, announced: bool) -> None:
        for link in self.links:
            if announced:
                link.greet()
        esync = self.storm.esync
        if esync is not None:
            self.steps = JudgedSteps(esync)
            if self.storm.state_lost:
                self.steps.handle(ServerLost(), self.clock)
        self._send(self.machine.begin(self.clock))

    def end(self, *, lost: bool) -> None:
        self.alive = False
        for link in self.links:
            link.end(lost=lost)

    def lose_state_server(self) -> None:
        if self.alive and self.steps is not None:
            self._do(self.steps.handle(ServerLost(), self.clock))

    # Connections.

    def _link(self, server: int, joined: Joined) -> Link:
        storm, plan = self.storm, self.storm.plan
        state = server == plan.servers
        greeting: list[Any] = [joined] if state else [(shard, joined) for shard in storm.shards_of(server)]
        host = storm.hosts[server]
        to_server: Callable[[Any], None] = partial(storm.ask, self) if state else partial(storm.take, self)
        to_worker = self._heard if state else self._told
        link = Link(storm, greeting, to_server, to_worker, lambda: host.frozen, lambda: self.frozen)
        link.latency = plan.far if state else plan.latency
        return link

    def _send(self, messages: Iterable[Message]) -> None:
        for shard, message in messages:
            self.links[self.storm.server_of(shard)].post((shard, message))

    def _told(self, reply: tuple[int, Apply | Drop | Grant]) -> None:
        """A shard has answered."""
        if not self.alive:
            return
        shard, answer = reply
        if isinstance(answer, Drop) and answer.reason.cause in ("zombie", "stranger"):
            self.storm.reborn(self)
            return
        kind = Pulled if isinstance(answer, Grant) else Pushed
        link = self.links[self.storm.server_of(shard)]
        link.answered(
            lambda sent: sent[0] == shard and isinstance(sent[1], kind) and sent[1].iteration == answer.iteration
        )
        if isinstance(answer, Grant):
            self._decided(self.machine.granted(shard, answer, self.clock))

    # Work.

    def _decided(self, decisions: Iterable[Start | SetPullTimer]) -> None:
        for decision in decisions:
            if isinstance(decision, Start):
                self._start(decision.iteration)
            else:
                wait = max(decision.at - self.clock, TICK)
                self.storm.at(self.storm.now + wait, partial(self._timer_fired, decision.timer))

    def _timer_fired(self, timer: int) -> None:
        if self._able(partial(self._timer_fired, timer)):
            self._decided(self.machine.timer_fired(timer, self.clock))

    def _able(self, again: Callable[[], None]) -> bool:
        """Can it act now? While it is frozen it does so later."""
        if self.alive and self.storm.now < self.frozen:
            self.storm.at(self.frozen, again)
            return False
        return self.alive

    def _start(self, iteration: int) -> None:
        if iteration >= self.storm.plan.iterations and not self.storm.ahead:
            self.end(lost=False)
            self.storm.declare(self)
        elif self.steps is not None and self.storm.is_esync:
            self._ask(Began(self.worker, iteration))
            self._do(self.steps.handle(RoundBegan(iteration), self.clock))
        else:
            self._compute(self._computed)

    def _compute(self, done: Callable[[], None]) -> None:
        self.storm.at(self.storm.now + self.storm.work(self.worker), done)

    def _computed(self) -> None:
        if self._able(self._computed):
            self._push()

    def _push(self) -> None:
        significance = (self.worker * 7 + self.machine.iteration * 3) % 10 / 10
        messages, decisions = self.machine.computed(self.clock, significance)
        if self.storm.plan.numbered:
            messages = [(shard, self._numbered(message)) for shard, message in messages]
        self._sequence += 1
        self._send(messages)
        self._decided(decisions)

    def _numbered(self, message: Pushed | Pulled) -> Pushed | Pulled:
        return replace(message, sequence=self._sequence) if isinstance(message, Pushed) else message

    # Local iterations.

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Query(round_, steps, capability, finished):
                    self._ask((Queried(self.worker, steps, capability, finished), round_))
                case Step():
                    self._step += 1
                    self._compute(partial(self._step_done, self._step))
                case Contribute():
                    self._step += 1
                    self._push()

    def _ask(self, message: Any) -> None:
        self.links[-1].post(message)

    def _heard(self, reply: tuple[Any, Answered | None]) -> None:
        """The State Server has answered."""
        if self.alive and self.steps is not None:
            asked, answer = reply
            self.links[-1].answered(lambda sent: sent is asked)
            if answer is not None:
                self._do(self.steps.handle(answer, self.clock))

    def _step_done(self, step: int) -> None:
        if self._able(partial(self._step_done, step)) and step == self._step:
            assert self.steps is not None
            self._do(self.steps.handle(StepDone(), self.clock))
