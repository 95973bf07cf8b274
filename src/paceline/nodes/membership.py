"""Who takes part in a run, and when it begins and ends: the coordinator's machine.

Like the machine of a shard it is pure: messages and the time in, commands out. A run goes through four phases.

    gathering    servers and workers come; worker 0 says what the parameters are, the others must agree
    preparing    the servers are told what to hold, and set it up
    running      workers train; they may leave, die and join. Without a server the run cannot go on, without the State
                 Server it can
    over         all workers are done, or something that cannot be mended has happened
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from paceline.nodes import messages as m
from paceline.nodes.description import difference, space_of
from paceline.nodes.errors import Expelled, NodeError, PeerLost, StartFailed, WrongModel, WrongRequest
from paceline.nodes.job import Job
from paceline.nodes.model_changes import ModelChanges
from paceline.nodes.roster import Peer, Roster
from paceline.params import ParameterError, Space, by_key, elastic
from paceline.sync import parse
from paceline.sync.models.esync import ESync
from paceline.wire import Address


class Send(Struct, frozen=True):
    link: int
    message: m.AnyMessage


class Close(Struct, frozen=True):
    """Nothing more is expected of this peer, or wanted."""

    link: int


class End(Struct, frozen=True):
    """Tell everyone that the run is over, and stop. Without an error it has ended well."""

    error: NodeError | None


Command = Send | Close | End


class Membership:
    def __init__(self, job: Job, now: float) -> None:
        self.job = job
        self.phase: Literal["gathering", "preparing", "running", "over"] = "gathering"
        model = parse(job.sync)
        self._all_reduces = isinstance(model, ESync) and model.aggregate == "all_reduce"
        self._since = now
        self._roster = Roster(job)
        self.changes = ModelChanges(job)
        self._lives: dict[int, int] = {}  # the last incarnation of each worker
        self._agreed: m.Describe | None = None
        self._addresses: dict[int, Address] = {}
        self._places: list[m.Place] = []
        self._uninitialised: set[int] = set()  # links of servers that have no parameters yet
        self._giver: int | None = None  # the worker that gives them
        self._finished = 0
        self._admitting: dict[m.Member, tuple[int, set[int]]] = {}  # the joiner's link, and servers still to answer
        self._barrier: dict[int, int] = {}  # the iteration at which each waiting worker stands, by link

    # What happens.

    def came(self, link: int, hello: m.AnyMessage, now: float) -> list[Command]:
        """A connection has introduced itself."""
        match hello:
            case m.OperatorHello(pid):
                self._roster.add(link, Peer("operator", -1, pid, now))
                return []
            case m.ServerHello(server, pid):
                problem = self._roster.wrong_server(server)
                peer = Peer("server", server, pid, now)
            case m.StateServerHello(pid):
                problem = self._roster.wrong_state_server()
                peer = Peer("state server", 0, pid, now)
            case m.WorkerHello(worker, pid):
                number = self._roster.free_number() if worker is None else worker
                problem = self._wrong_worker(number)
                peer = Peer("worker", number, pid, now)
            case _:
                problem, peer = f"a {type(hello).__name__} is no introduction", Peer("operator", -1, 0, now)
        if problem is not None:
            return self._refuse(link, WrongRequest(problem))
        self._roster.add(link, peer)
        return []

    def received(self, link: int, message: m.AnyMessage, now: float) -> list[Command]:
        peer = self._roster.get(link)
        if peer is None or self.phase == "over":
            return []
        peer.heard = now
        if isinstance(message, m.Alive):
            return []
        answer = {
            "server": self._from_server,
            "state server": self._from_state_server,
            "worker": self._from_worker,
            "operator": self._from_operator,
        }
        commands = answer[peer.role](link, peer, message)
        if commands is None:
            return self._refuse(link, WrongRequest(f"{peer.name} sent {type(message).__name__} while {self.phase}"))
        return commands

    def _from_server(self, link: int, peer: Peer, message: m.AnyMessage) -> list[Command] | None:
        match message:
            case m.Serving(address):
                peer.address = address
                return self._if_complete()
            case m.Ready():
                peer.ready = True
                return self._if_ready()
            case m.Initialised():
                self._uninitialised.discard(link)
                return []
            case m.Admitted(member):
                return self._admitted(link, member)
            case m.Lost(member, why):
                return self._lost(member, why)
            case m.Changed(error):
                return self._changed(link, error)
        return None

    def _from_state_server(self, link: int, peer: Peer, message: m.AnyMessage) -> list[Command] | None:
        match message:
            case m.Serving(address):
                peer.address = address
                return self._if_complete()
            case m.Admitted(member):
                return self._admitted(link, member)
        return None

    def _from_worker(self, link: int, peer: Peer, message: m.AnyMessage) -> list[Command] | None:
        match message:
            case m.Describe() if peer.described is None:
                return self._described(link, peer, message)
            case m.Finished():
                return self._left(link, peer)
            case m.AtBarrier(iteration):
                self._barrier[link] = iteration
                return self._pass_barrier()
        return self._from_operator(link, peer, message)

    def _from_operator(self, link: int, peer: Peer, message: m.AnyMessage) -> list[Command] | None:
        return self._change(link, message) if isinstance(message, m.Change) else None

    def closed(self, link: int, why: str) -> list[Command]:
        peer = self._roster.get(link)
        if peer is None or self.phase == "over":
            return []
        if peer.role == "server":
            return self._end(PeerLost(f"{peer.name} is gone: {why}"))
        if peer.role == "worker":
            return self._gone(link, peer, why)
        return self._without(link)

    def tick(self, now: float) -> list[Command]:
        """To be called now and then, a few times in `job.silence`."""
        if self.phase == "over":
            return []
        if self.phase != "running" and now - self._since > self.job.start_within:
            return self._end(StartFailed(self._who_is_missing()))
        commands: list[Command] = []
        for link, peer in self._roster.all():
            if peer.role == "operator" or now - peer.heard <= self.job.silence:
                continue
            why = f"silent for {self.job.silence:g} s"
            if peer.role == "server":
                return commands + self._end(PeerLost(f"{peer.name} is gone: {why}"))
            if peer.role == "state server":
                commands += [Close(link), *self._without(link)]
                continue
            expelled = Expelled(f"{peer.name} was {why}; the others go on without it")
            commands += [Send(link, m.Halt(expelled.kind, str(expelled))), Close(link), *self._gone(link, peer, why)]
        return commands

    def links(self) -> list[int]:
        return [link for link, _ in self._roster.all()]

    # Coming together.

    def _described(self, link: int, peer: Peer, description: m.Describe) -> list[Command]:
        peer.described = description
        try:
            space_of(description)
        except ParameterError as error:
            return self._refuse(link, WrongModel(f"{peer.name}: {error}"))
        commands: list[Command] = []
        reference = self._reference()
        if reference is not None:
            judged = self._roster.of("worker") if peer.number == 0 and self.phase == "gathering" else [(link, peer)]
            for other_link, other in judged:
                wrong = other.described and difference(reference, other.described)
                if wrong:
                    commands += self._refuse(other_link, WrongModel(f"{other.name} has another model: {wrong}"))
        if link in self._roster and self.phase == "running":
            return commands + self._join(link, peer)
        return commands + self._if_complete()

    def _reference(self) -> m.Describe | None:
        if self.phase == "running":
            return self._agreed
        for _, peer in self._roster.of("worker"):
            if peer.number == 0:
                return peer.described
        return None

    def _if_complete(self) -> list[Command]:
        """Begin to prepare once everyone is there."""
        servers = [(link, peer) for link, peer in self._roster.of("server") if peer.address is not None]
        workers = [(link, peer) for link, peer in self._roster.of("worker") if peer.described is not None]
        enough = len(servers) == self.job.servers and len(workers) == self.job.workers
        enough = enough and (self._roster.state_server is not None or not self.job.asks)
        reference = self._reference()
        if self.phase != "gathering" or not enough or reference is None:
            return []
        self.phase = "preparing"
        self._agreed = reference
        self._places = places(space_of(reference), self.job)
        self.changes.begin(self._places)
        self._addresses = {peer.number: peer.address for _, peer in servers if peer.address is not None}
        for _, peer in workers:
            self._lives[peer.number] = 0
        members = [m.Member(number, 0) for number in sorted(self._lives)]
        optimizer = reference.optimizer or self.job.optimizer
        serve = m.Serve(reference.tensors, reference.dtype, self._places, members, self._addresses, optimizer)
        self._uninitialised = {link for link, _ in servers}
        return [Send(link, serve) for link, _ in servers]

    def _if_ready(self) -> list[Command]:
        if self.phase != "preparing" or not all(peer.ready for _, peer in self._roster.of("server")):
            return []
        self.phase = "running"
        self._giver = min(peer.number for _, peer in self._roster.of("worker"))
        return [command for link, peer in self._roster.of("worker") for command in self._begin(link, peer)]

    def _begin(self, link: int, peer: Peer) -> list[Command]:
        peer.ready = True
        gives = peer.number == self._giver and peer.incarnation == 0
        begin = m.Begin(peer.number, peer.incarnation, self._places, self._addresses, gives, self._roster.state_server)
        return [Send(link, begin)]

    def _join(self, link: int, peer: Peer) -> list[Command]:
        peer.incarnation = self._lives.get(peer.number, -1) + 1
        self._lives[peer.number] = peer.incarnation
        member = m.Member(peer.number, peer.incarnation)
        servers = [server for server, _ in self._roster.of("server", "state server")]
        self._admitting[member] = (link, set(servers))
        return [Send(server, m.Admit(member)) for server in servers]

    def _admitted(self, server: int, member: m.Member) -> list[Command]:
        link, missing = self._admitting.get(member, (-1, set()))
        missing.discard(server)
        peer = self._roster.get(link)
        if missing or peer is None:
            return []
        del self._admitting[member]
        return self._begin(link, peer)

    # Coming apart.

    def _without(self, link: int) -> list[Command]:
        """Somebody is gone who is not needed: an operator, or the State Server, whose loss workers see themselves."""
        self._roster.remove(link)
        waiting = [member for member, (_, missing) in self._admitting.items() if link in missing]
        return [command for member in waiting for command in self._admitted(link, member)]

    def _left(self, link: int, peer: Peer) -> list[Command]:
        self._finished += 1
        return [Send(link, m.Halt()), Close(link), *self._remove(link, peer, None)]

    def _gone(self, link: int, peer: Peer, why: str) -> list[Command]:
        if self.phase == "running" and self._uninitialised and peer.number == self._giver:
            return self._end(PeerLost(f"{peer.name} is gone before it gave the first parameters: {why}"))
        return self._remove(link, peer, why)

    def _remove(self, link: int, peer: Peer, why: str | None) -> list[Command]:
        self._roster.remove(link)
        self._barrier.pop(link, None)
        member = m.Member(peer.number, peer.incarnation)
        self._admitting.pop(member, None)
        if self.phase == "gathering":
            return []
        told = self._roster.of("server", "state server")
        commands: list[Command] = [Send(server, m.Expel(member)) for server, _ in told]
        if not self._roster.of("worker"):
            lost = why is not None and not self._finished
            return commands + self._end(PeerLost(f"no worker is left; {peer.name} is gone: {why}") if lost else None)
        return commands + self._pass_barrier()

    def _lost(self, member: m.Member, why: str) -> list[Command]:
        """A server cannot reach a worker: then it is gone for all of them."""
        for link, peer in self._roster.of("worker"):
            if (peer.number, peer.incarnation) == (member.worker, member.incarnation):
                expelled = Expelled(f"{peer.name} lost its connection to a server ({why}); the others go on without it")
                halt = Send(link, m.Halt(expelled.kind, str(expelled)))
                return [halt, Close(link), *self._gone(link, peer, why)]
        return []

    def _end(self, error: NodeError | None) -> list[Command]:
        self.phase = "over"
        return [End(error)]

    def _refuse(self, link: int, error: NodeError) -> list[Command]:
        self._roster.remove(link)
        return [Send(link, m.Failed(error.kind, str(error))), Close(link)]

    # While it runs.

    def _change(self, link: int, change: m.Change) -> list[Command]:
        if self.phase == "running":
            problem = self.changes.wrong(change)
        else:
            problem = f"the run is {self.phase}; a model can be changed while it is running"
        if problem is not None:
            return [Send(link, m.Changed(problem))]
        servers = {peer.number: server for server, peer in self._roster.of("server")}
        return [Send(server, change) for server in self.changes.ask(link, change, servers)]

    def _changed(self, server: int, error: str | None) -> list[Command]:
        done = self.changes.answered(server, error)
        return [Send(*done)] if done is not None and done[0] in self._roster else []

    def _pass_barrier(self) -> list[Command]:
        at = min((self._barrier.get(link, -1) for link, peer in self._roster.of("worker") if peer.ready), default=-1)
        passing = [link for link, iteration in self._barrier.items() if iteration <= at]
        commands: list[Command] = [Send(link, m.PassBarrier(self._barrier[link])) for link in passing]
        for link in passing:
            del self._barrier[link]
        return commands

    def _wrong_worker(self, worker: int) -> str | None:
        if self.phase == "preparing":
            return f"worker {worker} comes while the run is being prepared; try again"
        if self.phase == "running" and self._all_reduces:
            return f"worker {worker} comes while the run goes on, but who adds up with an all-reduce is fixed"
        return self._roster.wrong_worker(worker, more=self.phase != "gathering")

    def _who_is_missing(self) -> str:
        names = self._roster.missing()
        what = f"{', '.join(names)} did not come" if names else "the servers did not get ready"
        return f"the run did not begin within {self.job.start_within:g} s: {what}"


def places(space: Space, job: Job) -> list[m.Place]:
    """The shards of a run, numbered in the order of the parameters."""
    holders = range(job.servers * job.shards_per_server)
    slicing = (elastic if job.slicing == "elastic" else by_key)(space, holders)
    return [
        m.Place(shard, piece.start, piece.stop, piece.server // job.shards_per_server)
        for shard, piece in enumerate(slicing.slices)
    ]
