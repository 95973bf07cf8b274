"""A server: one or more shards, the workers' connections to them, and the line to the coordinator, in one loop."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic

import torch

from paceline.nodes import messages as m
from paceline.nodes.coordinator import no_payload
from paceline.nodes.coordinator_line import CoordinatorLine
from paceline.nodes.cores import crew_here, may_stay_awake
from paceline.nodes.encoding import add_norms
from paceline.nodes.errors import NodeError, WrongRequest
from paceline.nodes.job import Job, Network
from paceline.nodes.norm_exchange import partners
from paceline.nodes.shard_host import ShardHost
from paceline.observe.trace import ShardSetup, Trace
from paceline.params import Space
from paceline.sync import ModelError
from paceline.wire import Address, Channel, FrameError, Incoming, Listener, Loop, WireError

WITH_PAYLOAD = (m.Push, m.Initial, m.Row)


class Server:
    """`trace` names the file that every event and command is written to.

    `late` is told how many seconds the server has been up, and says by how many to delay the next answer to a pull.
    """

    def __init__(
        self,
        job: Job,
        number: int,
        network: Network,
        *,
        trace: Path | None = None,
        late: Callable[[float], float] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.job = job
        self.number = number
        self.hosts: dict[int, ShardHost] = {}
        self._network = network
        self._clock = clock
        self._loop = Loop(clock=clock, awake=may_stay_awake(job))
        self._listener: Listener | None = None
        self._coordinator = CoordinatorLine(job, self._loop, self._from_coordinator, self._end)
        self._members: dict[int, m.Member] = {}
        self._server_of: dict[int, int] = {}  # by shard
        self._partners: dict[int, Channel] = {}  # servers with parts of the same tensors, for LARS
        self._trace_path = trace
        self._late = late
        self._saving: set[Channel] = set()  # who has asked for a copy
        self._began = clock()
        self._trace: Trace | None = None
        self._decoded: tuple[bytes, m.AnyMessage] = (b"", m.Alive())  # the last header that was decoded
        self._events = 0  # messages of workers so far
        self._error: NodeError | None = None

    def run(self, coordinator: Address) -> None:
        """Serve until the coordinator says that the run is over. Raises what ended it, if it did not end well."""
        self._listener = self._network.listen(config=self.job.digest())
        self._loop.listen(self._listener, self._connected)
        hello = m.ServerHello(self.number, os.getpid())
        self._coordinator.connect(self._network, coordinator, hello, m.Serving(self._listener.address))
        while not self._coordinator.over:
            pending = [host for host in self.hosts.values() if host.pending]
            before = self._events
            self._loop.run_once(min(host.patience for host in pending) if pending else None)
            if self._events == before:
                for host in pending:
                    host.idle()
        if self._error is not None:
            raise self._error

    @property
    def lost_residual(self) -> dict[int, float]:
        """By worker that has left: the norm of what its codec still held back."""
        lost: dict[int, float] = {}
        for host in self.hosts.values():
            add_norms(lost, host.lost_residual)
        return lost

    def close(self) -> None:
        self._loop.close()
        if self._listener is not None:
            self._listener.close()
        for host in self.hosts.values():
            host.close()
        if self._trace is not None:
            self._trace.close()

    # The coordinator.

    def _from_coordinator(self, message: m.AnyMessage) -> None:
        match message:
            case m.Serve():
                self._serve(message)
                self._coordinator.send(m.Ready())
            case m.Admit(member):
                self._members[member.worker] = member
                for host in self.hosts.values():
                    host.join(member)
                self._coordinator.send(m.Admitted(member))
            case m.Expel(member):
                self._leave(member)
            case m.Change(sync, shard):
                self._coordinator.send(m.Changed(self._change(sync, shard)))
            case _:
                self._coordinator.end(WrongRequest(f"the coordinator sent {type(message).__name__}"))

    def _end(self, error: NodeError | None) -> None:
        self._error = error

    def _serve(self, serve: m.Serve) -> None:
        space = Space({tensor.name: tensor.shape for tensor in serve.tensors})
        self._members = {member.worker: member for member in serve.members}
        places = [place for place in serve.places if place.server == self.number]
        if self._trace_path is not None:
            workers = tuple(member.worker for member in serve.members)
            update, seed = self.job.update, self.job.seed
            self._trace = Trace(
                self._trace_path, [ShardSetup(self.job.sync, workers, seed, place.shard, update) for place in places]
            )
            self._trace.start()
        crew = crew_here()
        for place in places:
            self.hosts[place.shard] = ShardHost(
                place,
                serve.places,
                space,
                getattr(torch, serve.dtype),
                self.job,
                serve.optimizer,
                serve.members,
                clock=self._clock,
                call_at=self._loop.call_at,
                tell_partners=self._tell_partners,
                crew=crew,
                trace=self._trace,
                late=None if self._late is None else self._delay,
            )
        if serve.optimizer.name == "lars":
            self._meet_partners(serve, space)

    def _delay(self) -> float:
        assert self._late is not None
        return self._late(self._clock() - self._began)

    def _meet_partners(self, serve: m.Serve, space: Space) -> None:
        """Connect to the servers that have parts of tensors that this one has parts of. Of two, the lower one calls."""
        self._server_of = {place.shard: place.server for place in serve.places}
        sharing = partners(serve.places, space)
        others = {self._server_of[other] for shard in self.hosts for other in sharing[shard]}
        hello, deadline = m.encode(m.ServerHello(self.number, os.getpid())), self._clock() + self.job.start_within
        for server in sorted(other for other in others if other > self.number):
            channel = self._network.connect(serve.servers[server], hello, self.job.digest(), deadline)
            self._met(server, channel)

    def _met(self, server: int, channel: Channel) -> None:
        channel.peer = f"server {server}"
        channel.sink = no_payload
        self._partners[server] = channel
        self._loop.add(channel, self._from_partner, self._partner_closed)

    def _partner_closed(self, channel: Channel, error: WireError) -> None:
        """The coordinator hears of it too, and ends the run."""

    def _from_partner(self, channel: Channel, incoming: Incoming) -> None:
        message = m.decode(incoming.header)
        if isinstance(message, m.Norms):
            for host in self.hosts.values():
                host.take_norms(message)

    def _tell_partners(self, norms: m.Norms, shards: set[int]) -> None:
        servers = {self._server_of[shard] for shard in shards}
        for server in servers:
            if server == self.number:
                for shard in shards & self.hosts.keys():
                    self._loop.call_soon(partial(self.hosts[shard].take_norms, norms))
            elif server in self._partners and not self._partners[server].closed:
                self._partners[server].send(m.encode(norms))

    def _change(self, sync: str, shard: int | None) -> str | None:
        try:
            for host in self.hosts.values() if shard is None else [self.hosts[shard]]:
                host.change(sync)
        except (ModelError, WrongRequest, KeyError) as error:
            return str(error)
        return None

    def _leave(self, member: m.Member) -> None:
        if self._members.get(member.worker) == member:
            del self._members[member.worker]
            for host in self.hosts.values():
                host.leave(member)

    # The workers.

    def _connected(self, channel: Channel, hello: bytes) -> None:
        try:
            match m.decode(hello):
                case m.WorkerHello(worker, _, incarnation) if worker is not None:
                    member = m.Member(worker, incarnation)
                case m.ServerHello(server, _):
                    self._met(server, channel)
                    return
                case m.OperatorHello(pid):
                    channel.peer = f"process {pid}"
                    channel.sink = no_payload
                    self._loop.add(channel, self._from_operator, lambda *_: self._saving.discard(channel))
                    return
                case other:
                    raise WrongRequest(f"a {type(other).__name__} has no business here")
            if self._members.get(member.worker) != member:
                raise WrongRequest(f"worker {member.worker}, life {member.incarnation}, is not in the run")
        except WrongRequest as error:
            self._refuse(channel, error)
            return
        channel.peer = f"worker {member.worker}"
        channel.sink = partial(self._landing, member)
        self._loop.add(channel, partial(self._from_worker, member), lambda _, error: self._worker_closed(member, error))
        for host in self.hosts.values():
            host.connect(channel, member)

    def _landing(self, member: m.Member, header: bytes, size: int) -> memoryview | None:
        try:
            message = m.decode(header)
            self._decoded = header, message
            if not isinstance(message, WITH_PAYLOAD):
                raise WrongRequest(f"a {type(message).__name__} came with {size} bytes")
            return self._host(message.shard).landing(member, message, size)
        except WrongRequest as error:
            raise FrameError("", str(error)) from None

    def _from_worker(self, member: m.Member, channel: Channel, incoming: Incoming) -> None:
        self._events += 1
        try:
            header, message = self._decoded  # the one whose payload has just landed, as a rule
            match message if header is incoming.header else m.decode(incoming.header):
                case m.Push() as push:
                    host = self._host(push.shard)
                    host.push(member, push, incoming)
                    if push.pull:
                        host.pull(member, push)
                case m.Pull() as pull:
                    self._host(pull.shard).pull(member, pull)
                case m.Row(shard, name):
                    self._host(shard).give_row(member, name, incoming)
                case m.Initial(shard) as initial:
                    self._host(shard).give_first(member, initial, incoming)
                    if all(host.initialised for host in self.hosts.values()):
                        self._coordinator.send(m.Initialised())
                case other:
                    raise WrongRequest(f"worker {member.worker} sent {type(other).__name__} to a server")
        except WrongRequest as error:
            self._refuse(channel, error)
            self._worker_closed(member, error)

    def _from_operator(self, channel: Channel, incoming: Incoming) -> None:
        """One copy for each connection, so that who asks and does not read cannot fill the memory."""
        try:
            message = m.decode(incoming.header)
            if not isinstance(message, m.Save) or channel in self._saving:
                raise WrongRequest(f"{channel.peer} may ask once for a copy, and sent {type(message).__name__}")
            if not all(host.initialised for host in self.hosts.values()):
                raise WrongRequest(f"server {self.number} has no parameters yet that could be saved")
        except WrongRequest as error:
            self._refuse(channel, error)
            return
        self._saving.add(channel)
        for host in self.hosts.values():
            host.save(channel)

    def _host(self, shard: int) -> ShardHost:
        host = self.hosts.get(shard)
        if host is None:
            raise WrongRequest(f"shard {shard} is not on server {self.number}; it has {sorted(self.hosts)}")
        return host

    def _worker_closed(self, member: m.Member, error: Exception) -> None:
        if self._members.get(member.worker) == member:
            self._leave(member)
            self._coordinator.send(m.Lost(member, str(error)))

    def _refuse(self, channel: Channel, error: NodeError) -> None:
        if not channel.closed:
            channel.send(m.encode(m.Failed(error.kind, str(error))))
            channel.close(str(error))
