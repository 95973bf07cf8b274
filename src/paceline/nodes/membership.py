"""Who takes part in a run, and when it begins and ends: the coordinator's machine.

Like the machine of a shard it is pure: messages and the time in, commands out. A run goes through four phases.

    gathering    servers and workers come; worker 0 says what the parameters are, the others must agree
    preparing    the servers are told what to hold, and set it up
    running      workers train; they may leave, die and join. Without a server the run cannot go on, without the State
                 Server it can
    over         all workers are done, or something that cannot be mended has happened
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from paceline.nodes import messages as m
from paceline.nodes.errors import Expelled, NodeError, PeerLost, StartFailed, WrongModel, WrongRequest
from paceline.nodes.job import Job, waits_for_its_round
from paceline.params import ParameterError, Space, by_key, elastic
from paceline.sync import Model, ModelError, parse
from paceline.sync.models.esync import ESync
from paceline.wire import Address

DTYPES = ("float32", "float64")
Role = Literal["worker", "server", "state server", "operator"]


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


class Peer:
    """A connection that has introduced itself."""

    def __init__(self, role: Role, number: int, pid: int, now: float) -> None:
        self.role = role
        self.number = number
        self.pid = pid
        self.heard = now
        self.incarnation = 0
        self.described: m.Describe | None = None
        self.address: Address | None = None
        self.ready = False  # a server: has set up what it holds. A worker: has been told to begin

    @property
    def name(self) -> str:
        number = f" {self.number}" if self.role in ("worker", "server") else ""
        return f"{self.role}{number} (pid {self.pid})"


class Membership:
    def __init__(self, job: Job, now: float) -> None:
        self.job = job
        self.phase: Literal["gathering", "preparing", "running", "over"] = "gathering"
        self.models: list[str] = []  # by shard
        model = parse(job.sync)
        self._replicas = _trains_replicas(model)
        self._all_reduces = isinstance(model, ESync) and model.aggregate == "all_reduce"
        self._since = now
        self._peers: dict[int, Peer] = {}
        self._lives: dict[int, int] = {}  # the last incarnation of each worker
        self._agreed: m.Describe | None = None
        self._addresses: dict[int, Address] = {}
        self._places: list[m.Place] = []
        self._uninitialised: set[int] = set()  # links of servers that have no parameters yet
        self._giver: int | None = None  # the worker that gives them
        self._finished = 0
        self._admitting: dict[m.Member, tuple[int, set[int]]] = {}  # the joiner's link, and servers still to answer
        self._changing: list[tuple[int, set[int], list[str]]] = []  # who asked, servers still to answer, what they said
        self._barrier: dict[int, int] = {}  # the iteration at which each waiting worker stands, by link

    # What happens.

    def came(self, link: int, hello: m.AnyMessage, now: float) -> list[Command]:
        """A connection has introduced itself."""
        match hello:
            case m.OperatorHello(pid):
                self._peers[link] = Peer("operator", -1, pid, now)
                return []
            case m.ServerHello(server, pid):
                problem = self._wrong_server(server)
                peer = Peer("server", server, pid, now)
            case m.StateServerHello(pid):
                problem = self._wrong_state_server()
                peer = Peer("state server", 0, pid, now)
            case m.WorkerHello(worker, pid):
                number = self._free_number() if worker is None else worker
                problem = self._wrong_worker(number)
                peer = Peer("worker", number, pid, now)
            case _:
                problem, peer = f"a {type(hello).__name__} is no introduction", Peer("operator", -1, 0, now)
        if problem is not None:
            return self._refuse(link, WrongRequest(problem))
        self._peers[link] = peer
        return []

    def received(self, link: int, message: m.AnyMessage, now: float) -> list[Command]:
        peer = self._peers.get(link)
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
        peer = self._peers.get(link)
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
        for link, peer in list(self._peers.items()):
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
        return list(self._peers)

    # Coming together.

    def _described(self, link: int, peer: Peer, description: m.Describe) -> list[Command]:
        peer.described = description
        try:
            Space({tensor.name: tensor.shape for tensor in description.tensors})
            if description.dtype not in DTYPES:
                raise ParameterError(
                    f"parameters of type {description.dtype} cannot be served; {', '.join(DTYPES)} can"
                )
        except ParameterError as error:
            return self._refuse(link, WrongModel(f"{peer.name}: {error}"))
        commands: list[Command] = []
        reference = self._reference()
        if reference is not None:
            judged = self._of("worker") if peer.number == 0 and self.phase == "gathering" else [(link, peer)]
            for other_link, other in judged:
                wrong = other.described and difference(reference, other.described)
                if wrong:
                    commands += self._refuse(other_link, WrongModel(f"{other.name} has another model: {wrong}"))
        if link in self._peers and self.phase == "running":
            return commands + self._join(link, peer)
        return commands + self._if_complete()

    def _reference(self) -> m.Describe | None:
        if self.phase == "running":
            return self._agreed
        for _, peer in self._of("worker"):
            if peer.number == 0:
                return peer.described
        return None

    def _if_complete(self) -> list[Command]:
        """Begin to prepare once everyone is there."""
        servers = [(link, peer) for link, peer in self._of("server") if peer.address is not None]
        workers = [(link, peer) for link, peer in self._of("worker") if peer.described is not None]
        enough = len(servers) == self.job.servers and len(workers) == self.job.workers
        enough = enough and (self._state_server is not None or not self.job.asks)
        reference = self._reference()
        if self.phase != "gathering" or not enough or reference is None:
            return []
        self.phase = "preparing"
        self._agreed = reference
        space = Space({tensor.name: tensor.shape for tensor in reference.tensors})
        self._places = places(space, self.job)
        self.models = [self.job.sync] * len(self._places)
        self._addresses = {peer.number: peer.address for _, peer in servers if peer.address is not None}
        for _, peer in workers:
            self._lives[peer.number] = 0
        members = [m.Member(number, 0) for number in sorted(self._lives)]
        optimizer = reference.optimizer or self.job.optimizer
        serve = m.Serve(reference.tensors, reference.dtype, self._places, members, self._addresses, optimizer)
        self._uninitialised = {link for link, _ in servers}
        return [Send(link, serve) for link, _ in servers]

    def _if_ready(self) -> list[Command]:
        if self.phase != "preparing" or not all(peer.ready for _, peer in self._of("server")):
            return []
        self.phase = "running"
        self._giver = min(peer.number for _, peer in self._of("worker"))
        return [command for link, peer in self._of("worker") for command in self._begin(link, peer)]

    def _begin(self, link: int, peer: Peer) -> list[Command]:
        peer.ready = True
        gives = peer.number == self._giver and peer.incarnation == 0
        begin = m.Begin(peer.number, peer.incarnation, self._places, self._addresses, gives, self._state_server)
        return [Send(link, begin)]

    def _join(self, link: int, peer: Peer) -> list[Command]:
        peer.incarnation = self._lives.get(peer.number, -1) + 1
        self._lives[peer.number] = peer.incarnation
        member = m.Member(peer.number, peer.incarnation)
        servers = [server for server, _ in self._of("server") + self._of("state server")]
        self._admitting[member] = (link, set(servers))
        return [Send(server, m.Admit(member)) for server in servers]

    def _admitted(self, server: int, member: m.Member) -> list[Command]:
        link, missing = self._admitting.get(member, (-1, set()))
        missing.discard(server)
        if missing or link not in self._peers:
            return []
        del self._admitting[member]
        return self._begin(link, self._peers[link])

    @property
    def _state_server(self) -> Address | None:
        """Where it can be reached, if there is one."""
        return next((peer.address for _, peer in self._of("state server")), None)

    # Coming apart.

    def _without(self, link: int) -> list[Command]:
        """Somebody is gone who is not needed: an operator, or the State Server, whose loss workers see themselves."""
        del self._peers[link]
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
        del self._peers[link]
        self._barrier.pop(link, None)
        member = m.Member(peer.number, peer.incarnation)
        self._admitting.pop(member, None)
        if self.phase == "gathering":
            return []
        told = self._of("server") + self._of("state server")
        commands: list[Command] = [Send(server, m.Expel(member)) for server, _ in told]
        if not self._of("worker"):
            lost = why is not None and not self._finished
            return commands + self._end(PeerLost(f"no worker is left; {peer.name} is gone: {why}") if lost else None)
        return commands + self._pass_barrier()

    def _lost(self, member: m.Member, why: str) -> list[Command]:
        """A server cannot reach a worker: then it is gone for all of them."""
        for link, peer in self._of("worker"):
            if (peer.number, peer.incarnation) == (member.worker, member.incarnation):
                expelled = Expelled(f"{peer.name} lost its connection to a server ({why}); the others go on without it")
                halt = Send(link, m.Halt(expelled.kind, str(expelled)))
                return [halt, Close(link), *self._gone(link, peer, why)]
        return []

    def _end(self, error: NodeError | None) -> list[Command]:
        self.phase = "over"
        return [End(error)]

    def _refuse(self, link: int, error: NodeError) -> list[Command]:
        self._peers.pop(link, None)
        return [Send(link, m.Failed(error.kind, str(error))), Close(link)]

    # While it runs.

    def _change(self, link: int, change: m.Change) -> list[Command]:
        problem = self._wrong_change(change)
        if problem is not None:
            return [Send(link, m.Changed(problem))]
        shards = range(len(self._places)) if change.shard is None else [change.shard]
        for shard in shards:
            self.models[shard] = change.sync
        hosts = {self._places[shard].server for shard in shards}
        asked = [server for server, peer in self._of("server") if peer.number in hosts]
        self._changing.append((link, set(asked), []))
        return [Send(server, change) for server in asked]

    def _wrong_change(self, change: m.Change) -> str | None:
        if self.phase != "running":
            return f"the run is {self.phase}; a model can be changed while it is running"
        if change.shard is not None and not 0 <= change.shard < len(self._places):
            return f"there is no shard {change.shard}; there are 0 to {len(self._places) - 1}"
        try:
            model = parse(change.sync)
        except ModelError as error:
            return str(error)
        if _trains_replicas(model) or self._replicas:
            return "workers of esync train replicas of their own; it is chosen when a run starts and cannot be changed"
        if self.job.deterministic and not waits_for_its_round(model, self.job.update, self.job.workers):
            return f"the run is deterministic; {change.sync} sums in no fixed order"
        if change.shard is not None and len(self._places) > 1:
            for name in (change.sync, self.models[change.shard]):
                if parse(name).everywhere:
                    return f"{name} must be in force on all shards or on none; leave out the shard"
        return None

    def _changed(self, server: int, error: str | None) -> list[Command]:
        """Servers answer changes in the order in which they were asked."""
        for change in self._changing:
            link, missing, errors = change
            if server in missing:
                missing.remove(server)
                errors += [error] if error else []
                if missing:
                    return []
                self._changing.remove(change)
                return [Send(link, m.Changed(errors[0] if errors else None))] if link in self._peers else []
        return []

    def _pass_barrier(self) -> list[Command]:
        at = min((self._barrier.get(link, -1) for link, peer in self._of("worker") if peer.ready), default=-1)
        passing = [link for link, iteration in self._barrier.items() if iteration <= at]
        commands: list[Command] = [Send(link, m.PassBarrier(self._barrier[link])) for link in passing]
        for link in passing:
            del self._barrier[link]
        return commands

    # Who is who.

    def _of(self, role: str) -> list[tuple[int, Peer]]:
        return [(link, peer) for link, peer in self._peers.items() if peer.role == role]

    def _free_number(self) -> int:
        taken = {peer.number for _, peer in self._of("worker")}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    def _wrong_server(self, server: int) -> str | None:
        if not 0 <= server < self.job.servers:
            return f"there is no server {server}; there are 0 to {self.job.servers - 1}"
        if server in {peer.number for _, peer in self._of("server")}:
            return f"server {server} is there already"
        return None

    def _wrong_state_server(self) -> str | None:
        if not self.job.asks:
            return f"{self.job.sync} needs no State Server"
        return "there is a State Server already" if self._of("state server") else None

    def _wrong_worker(self, worker: int) -> str | None:
        if self.phase == "preparing":
            return f"worker {worker} comes while the run is being prepared; try again"
        if self.phase == "running" and self._all_reduces:
            return f"worker {worker} comes while the run goes on, but who adds up with an all-reduce is fixed"
        if worker < 0 or (worker >= self.job.workers and self.phase == "gathering"):
            return f"there is no worker {worker}; there are 0 to {self.job.workers - 1}"
        if worker in {peer.number for _, peer in self._of("worker")}:
            return f"worker {worker} is there already"
        return None

    def _who_is_missing(self) -> str:
        def missing(role: str, count: int) -> list[str]:
            here = {peer.number for _, peer in self._of(role)}
            return [f"{role} {number}" for number in range(count) if number not in here]

        names = missing("server", self.job.servers) + missing("worker", self.job.workers)
        names += ["the State Server"] if self.job.asks and self._state_server is None else []
        what = f"{', '.join(names)} did not come" if names else "the servers did not get ready"
        return f"the run did not begin within {self.job.start_within:g} s: {what}"


def _trains_replicas(model: Model) -> bool:
    return isinstance(model, ESync) and not model.one_step


def places(space: Space, job: Job) -> list[m.Place]:
    """The shards of a run, numbered in the order of the parameters."""
    holders = range(job.servers * job.shards_per_server)
    slicing = (elastic if job.slicing == "elastic" else by_key)(space, holders)
    return [
        m.Place(shard, piece.start, piece.stop, piece.server // job.shards_per_server)
        for shard, piece in enumerate(slicing.slices)
    ]


def difference(ours: m.Describe, theirs: m.Describe) -> str | None:
    """The first parameter in which two models differ, in words; None where they are the same."""
    if ours.dtype != theirs.dtype:
        return f"its parameters are {theirs.dtype}, the run's are {ours.dtype}"
    mine = {tensor.name: tensor.shape for tensor in ours.tensors}
    for tensor in theirs.tensors:
        if tensor.name not in mine:
            return f"parameter {tensor.name!r} is not in the run{_nearest(tensor.name, mine)}"
        if tensor.shape != mine[tensor.name]:
            return f"parameter {tensor.name!r} has the shape {tensor.shape}, in the run it is {mine[tensor.name]}"
    have = {tensor.name for tensor in theirs.tensors}
    for tensor in ours.tensors:
        if tensor.name not in have:
            return f"parameter {tensor.name!r} is missing"
    if ours.tensors != theirs.tensors:
        return "its parameters come in another order"
    if ours.optimizer != theirs.optimizer:
        return f"its optimizer is {theirs.optimizer}, the run's is {ours.optimizer}"
    return None


def _nearest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; {close[0]!r} is" if close else ""
