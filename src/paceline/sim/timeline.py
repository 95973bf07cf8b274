"""The same uneven workers under any model, in virtual time.

`simulate` drives the core's own machines: a watched `Shard` for each slice, a `Worker` for each worker, and under
`esync` the State Server and each worker's `LocalSteps`. What is to happen stands in one heap, keyed by time, priority
and sequence, so a run depends on its arguments and on nothing else. Invariants are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from paceline.sim.cluster import Cluster, ClusterError, Hiccup, machines, of_paces
from paceline.sim.network import Network
from paceline.sim.record import Recorder, Timeline
from paceline.sync import (
    Advance,
    Apply,
    Command,
    Drop,
    Event,
    Grant,
    Hold,
    Model,
    Pushed,
    SetTimer,
    Shard,
    TimerFired,
    parse,
)
from paceline.sync.invariants import Watch, nothing_waits_in_vain
from paceline.sync.local_steps import Action, Answered, Contribute, LocalSteps, Query, RoundBegan, Step, StepDone
from paceline.sync.models.esync import ESync
from paceline.sync.partial_pull import SetPullTimer, Start
from paceline.sync.state_server import Began, Queried, StateServer
from paceline.sync.worker import Worker

OnEvent = Callable[[int, float, Event, Sequence[Command]], None]  # shard, time, event, commands

COMPUTED, MESSAGE, TIMER = 0, 1, 2  # what comes first of all that happens at one time
SIGNIFICANCE = 1.0  # of every gradient, for the models that ask, where there is none to measure


class Learns(Protocol):
    """What goes on in the machines while the simulation says when: it is told of all that touches values."""

    def decided(self, shard: int, commands: Sequence[Command]) -> None: ...

    def answered(self, worker: int, shard: int, iteration: int) -> None: ...

    def starts(self, worker: int, take: Iterable[int]) -> None: ...

    def computes(self, worker: int) -> None: ...

    def computed(self, worker: int, *, local: bool) -> None: ...

    def pushes(self, worker: int, iteration: int, weight: float) -> float: ...


def simulate(
    model: Model | str,
    paces: Sequence[float],
    *,
    shards: int = 1,
    until: float = 30.0,
    seed: int = 0,
    latency: float | Sequence[float] = 0.0,
    jitter: float = 0.0,
    hiccups: Iterable[Hiccup] = (),
    slow: Sequence[str] = (),
) -> Timeline:
    """Let workers with these seconds per iteration train under a model until a time.

    `latency` is how long a message to or from a shard travels, for all shards or for each. `seed` is for the jitter and
    for the coins of probabilistic models.
    """
    cluster = of_paces(
        paces, jitter=jitter, hiccups=tuple(hiccups), latency=latency, shards=shards, slow=slow, seed=seed
    )
    return simulate_cluster(model, cluster, until)


def simulate_cluster(
    model: Model | str, cluster: Cluster, until: float, on_event: OnEvent | None = None, *, watched: bool = True
) -> Timeline:
    """Let the workers of a cluster train under a model until a time. `on_event` sees what shards are told and say.

    The core's invariants are checked at every event if it is `watched`, which takes as long again.
    """
    if not 0 < until < inf:
        raise ClusterError(f"the end is at {until:g} seconds; give a number above 0")
    return Simulation(parse(model), cluster, on_event, watched=watched).run(until)


class Simulation:
    """Shards and workers, and what is under way between them."""

    def __init__(
        self,
        model: Model,
        cluster: Cluster,
        on_event: OnEvent | None = None,
        *,
        watched: bool = True,
        learning: Learns | None = None,
    ) -> None:
        self.model = model
        self.learning = learning
        self.machines = machines(cluster)
        self.network = Network(cluster, self, MESSAGE)
        self.shards = cluster.cuts
        self.servers = cluster.servers.count
        self.sizes = [share * cluster.megabytes * 1e6 for share in cluster.shares]  # bytes of each shard
        self.now = 0.0
        workers = len(self.machines)
        self.hosts = [Shard(model, workers, cluster.seed, index=index) for index in range(self.shards)]
        self._watches = [Watch(shard) for shard in self.hosts] if watched else []
        self._handle = [machine.handle for machine in self._watches or self.hosts]
        self.nodes = [Node(self, worker) for worker in range(workers)]
        if isinstance(model, ESync):
            server = StateServer(model, workers)
            self.nodes = [LocalNode(self, worker, model, server) for worker in range(workers)]
        self._updates = [share * cluster.servers.update for share in cluster.shares]
        self._busy = [0.0] * self.servers  # until when each server updates
        self._on_event = on_event
        self._agenda: list[tuple[float, int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._applied = 0
        self._staleness = 0
        self._stopped = False

    @property
    def events(self) -> int:
        """How many things were to happen so far."""
        return self._sequence

    def at(self, time: float, priority: int, action: Callable[[], None]) -> None:
        """Have something happen. What is due already happens now, after what was put down before it."""
        self._sequence += 1
        heappush(self._agenda, (max(time, self.now), priority, self._sequence, action))

    def run(self, until: float) -> Timeline:
        for node in self.nodes:
            node.begin()
        while self._agenda and self._agenda[0][0] <= until and not self._stopped:
            self.now, _, _, action = heappop(self._agenda)
            action()
        if not self._agenda:
            nothing_waits_in_vain(self._watches)
        return self._timeline(self.now if self._stopped else until)

    def stop(self) -> None:
        """Let nothing more happen."""
        self._stopped = True

    def deliver(self, shard: int, event: Event) -> None:
        """Hand an event to a shard, and do what it says."""
        missing = self.missing(shard) if isinstance(event, TimerFired) else ()
        commands = self._handle[shard](event, self.now)
        if self._on_event is not None:
            self._on_event(shard, self.now, event, commands)
        if self.learning is not None:
            self.learning.decided(shard, commands)
        server = shard % self.servers
        for command in commands:
            match command:
                case Grant(worker=worker):
                    waited_for = self.nodes[worker].record.answered(shard, command, missing)
                    answer = partial(self.nodes[worker].granted, shard, command, waited_for)
                    ready = max(self.now, self._busy[server]) + self.network.late(server)
                    self._answer(shard, worker, ready, answer)
                case Hold(worker=worker):
                    self.nodes[worker].record.held(shard, command)
                case Apply(staleness=staleness):
                    self._applied += 1
                    self._staleness += staleness
                    if command.round is None:
                        self._work(shard)
                case Advance():
                    self._work(shard)
                case Drop(worker=worker, iteration=iteration):
                    self.nodes[worker].record.dropped(iteration, self.shards)
                case SetTimer(at=at, timer=timer):
                    self.at(at, TIMER, partial(self.deliver, shard, TimerFired(timer)))

    def _answer(self, shard: int, worker: int, ready: float, answer: Callable[[], None]) -> None:
        """Send a worker a shard's parameters, when the server is ready to: until then its line is free for others."""
        if ready > self.now:
            self.at(ready, MESSAGE, partial(self._answer, shard, worker, ready, answer))
        else:
            self.network.to_worker(shard % self.servers, worker, self.sizes[shard], answer)

    def _work(self, shard: int) -> None:
        """A server updates a shard, after what it has to update already."""
        server = shard % self.servers
        self._busy[server] = max(self.now, self._busy[server]) + self._updates[shard]

    def missing(self, shard: int) -> tuple[int, ...]:
        """Whom a shard's open round waits for."""
        return self.model.waiting_for(self.hosts[shard].view)[1]

    def _timeline(self, until: float) -> Timeline:
        lanes = [
            node.record.lane(machine.pace, until, self.missing)
            for node, machine in zip(self.nodes, self.machines, strict=True)
        ]
        return Timeline(
            model=str(self.model),
            seconds=until,
            shards=self.shards,
            iterations=sum(lane.iterations for lane in lanes),
            used=round(sum(lane.used for lane in lanes), 9),
            computing=sum(lane.computing for lane in lanes) / len(lanes),
            held_pulls=sum(shard.counters.held_pulls for shard in self.hosts),
            dropped=sum(shard.counters.dropped for shard in self.hosts),
            staleness=self._staleness / self._applied if self._applied else 0.0,
            rounds=self.hosts[0].counters.advances,
            lanes=lanes,
        )


class Node:
    """One virtual worker: computes what its machine says, for as long as its pace says."""

    def __init__(self, simulation: Simulation, worker: int) -> None:
        model = simulation.model
        self.simulation = simulation
        self.learning = simulation.learning
        self.worker = worker
        self.machine = Worker(worker, simulation.shards, b=model.b, tau=model.tau_pull)
        self.record = Recorder(worker)

    def begin(self) -> None:
        self._send(self.machine.begin(self.simulation.now))

    def granted(self, shard: int, grant: Grant, waited_for: tuple[int, ...]) -> None:
        if self.learning is not None:
            self.learning.answered(self.worker, shard, grant.iteration)
        self._decided(self.machine.granted(shard, grant, self.simulation.now), waited_for)

    def start(self, iteration: int) -> None:
        """Compute an iteration."""
        self._compute(iteration, self._computed)

    def _compute(self, iteration: int, done: Callable[[], None]) -> None:
        simulation = self.simulation
        end = simulation.machines[self.worker].end(self.record.begun, simulation.now)
        self.record.computes(iteration, simulation.now)
        if self.learning is not None:
            self.learning.computes(self.worker)
        simulation.at(end, COMPUTED, done)

    def _computed(self) -> None:
        self.record.waits(self.simulation.now, done=True)
        if self.learning is not None:
            self.learning.computed(self.worker, local=False)
        self._push()

    def _push(self, weight: float = 1.0) -> None:
        significance = SIGNIFICANCE
        if self.learning is not None:
            significance = self.learning.pushes(self.worker, self.machine.iteration, weight)
        messages, commands = self.machine.computed(self.simulation.now, significance)
        self._send(messages)
        self._decided(commands, ())

    def _send(self, messages: Iterable[tuple[int, Event]]) -> None:
        simulation = self.simulation
        for shard, message in messages:
            size = simulation.sizes[shard] if isinstance(message, Pushed) else 0.0
            there = partial(simulation.deliver, shard, message)
            simulation.network.to_server(self.worker, shard % simulation.servers, size, there)

    def _decided(self, commands: Iterable[Start | SetPullTimer], waited_for: tuple[int, ...]) -> None:
        for command in commands:
            match command:
                case Start(iteration=iteration, take=take):
                    self.record.wait_ended(waited_for, self.simulation.now)
                    if self.learning is not None:
                        self.learning.starts(self.worker, take)
                    self.start(iteration)
                case SetPullTimer(at=at, timer=timer):
                    self.simulation.at(at, TIMER, partial(self._timer_fired, timer))

    def _timer_fired(self, timer: int) -> None:
        waited_for = self.record.unanswered(self.simulation.missing)
        self._decided(self.machine.timer_fired(timer, self.simulation.now), waited_for)


class LocalNode(Node):
    """A worker under ESync: what it pushes as one iteration is a round of local ones, as many as there is time for."""

    def __init__(self, simulation: Simulation, worker: int, model: ESync, server: StateServer) -> None:
        super().__init__(simulation, worker)
        self.model = model
        self.steps = LocalSteps(model)
        self.server = server
        self._step = 0  # which local iteration is under way, or 0; one that was given up never ends

    def start(self, iteration: int) -> None:
        """Begin a round."""
        self._ask(Began(self.worker, iteration))
        self._do(self.steps.handle(RoundBegan(iteration), self.simulation.now))

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Query():
                    self._ask(Queried(self.worker, action.steps, action.capability, action.finished), action.round)
                case Step():
                    self._step = self.record.begun + 1
                    self._compute(self.machine.iteration, partial(self._step_done, self._step))
                case Contribute(steps=steps, most=most):
                    if self._step:
                        self._step = 0
                        self.record.waits(self.simulation.now, done=False)
                    self._push(self.model.weight(steps, most, fallen=1.0))  # in virtual time rates never fall

    def _ask(self, event: Began | Queried, round_: int = -1) -> None:
        self.simulation.network.to_server(self.worker, 0, 0.0, partial(self._asked, event, round_))

    def _asked(self, event: Began | Queried, round_: int) -> None:
        """At the State Server, which is as far away as the first server."""
        simulation = self.simulation
        for answer in self.server.handle(event, simulation.now):
            back = Answered(round_, answer.steps, answer.ready, answer.most)
            simulation.network.to_worker(0, self.worker, 0.0, partial(self._heard, back))

    def _heard(self, answer: Answered) -> None:
        self._do(self.steps.handle(answer, self.simulation.now))

    def _step_done(self, step: int) -> None:
        if step == self._step:
            self._step = 0
            self.record.waits(self.simulation.now, done=True)
            if self.learning is not None:
                self.learning.computed(self.worker, local=True)
            self._do(self.steps.handle(StepDone(), self.simulation.now))
