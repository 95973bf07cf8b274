"""The State Server as a node of its own: it answers workers' queries under esync, and nothing depends on its life.

It is told by the coordinator who takes part. Times are those of its own clock, at which queries arrive: clocks of other
machines show other times.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Event
from time import monotonic

from paceline.nodes import messages as m
from paceline.nodes.coordinator import no_payload
from paceline.nodes.coordinator_line import CoordinatorLine
from paceline.nodes.errors import NodeError, StartFailed, WrongRequest
from paceline.nodes.job import Job, Network
from paceline.sync import Joined, Left, parse
from paceline.sync.models.esync import ESync
from paceline.sync.state_server import Answer, Began, Queried
from paceline.sync.state_server import StateServer as Machine
from paceline.wire import Address, Channel, Incoming, Listener, Loop


class StateServer:
    def __init__(self, job: Job, network: Network, *, clock: Callable[[], float] = monotonic) -> None:
        model = parse(job.sync)
        if not isinstance(model, ESync):
            raise WrongRequest(f"{job.sync} needs no State Server; esync does")
        self.job = job
        self._machine = Machine(model, job.workers)
        self._network = network
        self._clock = clock
        self._loop = Loop(clock=clock)
        self._listener: Listener | None = None
        self._listens = Event()
        self._coordinator = CoordinatorLine(job, self._loop, self._from_coordinator, self._end)
        self._members = {number: m.Member(number, 0) for number in range(job.workers)}
        self._error: NodeError | None = None

    def run(self, coordinator: Address) -> None:
        """Answer until the coordinator says that the run is over. Raises what ended it, if it did not end well."""
        self._listener = self._network.listen(config=self.job.digest())
        self._loop.listen(self._listener, self._connected)
        self._listens.set()
        hello, first = m.StateServerHello(os.getpid()), m.Serving(self._listener.address)
        self._coordinator.connect(self._network, coordinator, hello, first)
        self._loop.run(lambda: self._coordinator.over)
        if self._error is not None:
            raise self._error

    def address(self, within: float) -> Address:
        """Where it can be reached, from another thread, as soon as that is known."""
        if not self._listens.wait(within) or self._listener is None:
            raise StartFailed(f"the State Server does not listen after {within:g} s")
        return self._listener.address

    def close(self) -> None:
        self._loop.close()
        if self._listener is not None:
            self._listener.close()

    # The coordinator.

    def _from_coordinator(self, message: m.AnyMessage) -> None:
        match message:
            case m.Admit(member):
                self._members[member.worker] = member
                self._machine.handle(Joined(member.worker, member.incarnation), self._clock())
                self._coordinator.send(m.Admitted(member))
            case m.Expel(member):
                if self._members.get(member.worker) == member:
                    del self._members[member.worker]
                    self._machine.handle(Left(member.worker), self._clock())
            case _:
                self._coordinator.end(WrongRequest(f"the coordinator sent {type(message).__name__}"))

    def _end(self, error: NodeError | None) -> None:
        self._error = error

    # The workers.

    def _connected(self, channel: Channel, hello: bytes) -> None:
        try:
            match m.decode(hello):
                case m.WorkerHello(worker, _, incarnation) if worker is not None:
                    member = m.Member(worker, incarnation)
                case other:
                    raise WrongRequest(f"a {type(other).__name__} has no business here")
            if self._members.get(member.worker) != member:
                raise WrongRequest(f"worker {member.worker}, life {member.incarnation}, is not in the run")
        except WrongRequest as error:
            self._refuse(channel, error)
            return
        channel.peer = f"worker {member.worker}"
        channel.sink = no_payload
        self._loop.add(channel, partial(self._from_worker, member), lambda *_: None)  # the coordinator hears of its end

    def _from_worker(self, member: m.Member, channel: Channel, incoming: Incoming) -> None:
        try:
            message, now = m.decode(incoming.header), self._clock()
            if self._members.get(member.worker) != member:
                return  # it has left in the meantime
            match message:
                case m.Query(round_, steps, capability) if steps >= 0 and capability >= 0:
                    for answer in self._machine.handle(Queried(member.worker, steps, capability, now), now):
                        self._answer(channel, round_, answer)
                case m.RoundBegan(round_):
                    self._machine.handle(Began(member.worker, round_), now)
                case other:
                    raise WrongRequest(f"worker {member.worker} sent {other} to the State Server")
        except WrongRequest as error:
            self._refuse(channel, error)

    def _answer(self, channel: Channel, round_: int, answer: Answer) -> None:
        channel.send(m.encode(m.State(round_, answer.steps, answer.ready, answer.most)))

    def _refuse(self, channel: Channel, error: NodeError) -> None:
        if not channel.closed:
            channel.send(m.encode(m.Failed(error.kind, str(error))))
            channel.close(str(error))
