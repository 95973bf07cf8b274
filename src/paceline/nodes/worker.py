"""A worker: pushes gradients, pulls parameters, and goes on when the synchronization model lets it.

    with Worker(job, network, shapes) as worker:
        worker.start(coordinator, initial)
        while worker.iteration < iterations:
            worker.gradients.copy_(...)      # or let autograd write there
            worker.push()
            worker.clock()                   # worker.parameters are those to go on from; step() does both

`gradients` and `parameters` are flat tensors with the whole model. `gradients` lies in memory that the wire sends from:
a gradient written there moves once, into the server's sum. `push` and `pull` return at once with a handle to wait for,
and what they began goes on behind the caller's back.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Literal

import torch
from torch import Tensor

from paceline.nodes import messages as m
from paceline.nodes.control import Control
from paceline.nodes.cores import may_stay_awake
from paceline.nodes.encoding import check_lars, check_momentum
from paceline.nodes.errors import NodeError, NotFinite, PeerLost, WaitedTooLong, WrongRequest, error_of
from paceline.nodes.handle import Handle
from paceline.nodes.job import Job, Network
from paceline.nodes.pump import Pump
from paceline.nodes.replica import Replica, Values
from paceline.nodes.server_lines import ServerLines
from paceline.nodes.snapshot import Snapshot, Taking
from paceline.nodes.traffic import Traffic
from paceline.params import Optimizer, Space
from paceline.params.codecs import codec_of
from paceline.sync import Grant, Pulled, Reason
from paceline.sync.partial_pull import SetPullTimer, Start
from paceline.sync.worker import Worker as Machine
from paceline.wire import Address, ChannelClosed, Incoming, Loop, Timeout, Unreachable

VERDICT = 1.0  # how long to wait for the coordinator to say why a server's connection has closed
NO_REASON = Reason("", "open")  # a grant's reason stays with the server, in its trace


class Worker:
    """`number` is who it is; without one the coordinator gives it a free one. `optimizer` is for the servers to run,
    the same at all workers; without one it is the job's.

    `not_finite` says what happens when the servers refuse a gradient with NaN or Inf in it: `raise` an error that names
    the parameter, or `skip` it and count.

    With `in_place`, parameters of a server on the same host are not copied: `parts` has, for each shard, a tensor over
    the server's own memory, until the next push or until `give_back`. Only read it: whoever writes there ends the
    process. A server has two places for its values; unless workers wait for each other, as under `bsp`, an update may
    have to wait until a slow worker has read. So give them back soon.
    """

    def __init__(
        self,
        job: Job,
        network: Network,
        shapes: Mapping[str, Sequence[int]],
        *,
        number: int | None = None,
        dtype: torch.dtype = torch.float32,
        not_finite: Literal["raise", "skip"] = "raise",
        in_place: bool = False,
        optimizer: Optimizer | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._optimizer = optimizer
        self._lars = (optimizer or job.optimizer).name == "lars"
        if in_place and self._lars:
            raise WrongRequest("lars needs the norms of all parameters after parts are given back; not with in_place")
        codec = codec_of(job.codec)
        check_lars(codec, optimizer or job.optimizer, job.sync, job.update)
        check_momentum(codec, optimizer or job.optimizer)
        self.job = job
        self.in_place = in_place
        self.number = number
        self.incarnation = 0
        self.versions: dict[int, int] = {}  # of the parameters in place, by shard
        self.refused = 0  # how many of its gradients had NaN or Inf in them
        self.dropped = 0  # how many came too late
        self.held_for: Counter[int] = Counter()  # how often a pull of this one was held for which worker
        self.rates: tuple[float, ...] | None = None  # learning rates of the groups, if not the optimizer's own
        self._replica = Replica(Space(shapes), dtype, in_place=in_place)
        self._not_finite = not_finite
        self._network = network
        self._clock = clock
        self._loop = Loop(clock=clock, awake=may_stay_awake(job))
        self._control = Control(job, network, clock, self._loop.wake)
        self._lines = ServerLines(
            job,
            network,
            self._loop,
            self._replica,
            codec,
            heard=self._heard,
            lost=self._lost,
            must_wait=self._must_wait,
        )
        self.places: list[m.Place] = []  # the shards
        self._servers: dict[int, Address] = {}
        self._origin = 0
        self._machine = Machine(-1, 1)
        self._weigh = False
        self._pushes: dict[tuple[int, int], Handle] = {}  # by shard and iteration
        self._pull: Handle | None = None
        self._owed = 0  # how many blocks were asked for and have not come, in this wait or an earlier one
        self._next: Start | None = None  # what the machine has decided to go on with
        self._failure: NodeError | None = None
        self._running = False
        self._pump = Pump(self._loop, self._under_way)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def iteration(self) -> int:
        """The iteration under way, counted on from what there was before this run."""
        return self._origin + self._machine.iteration

    @property
    def traffic(self) -> Traffic:
        return self._lines.traffic

    @property
    def gradients(self) -> Tensor:
        """Where the gradient of the whole model is sent from."""
        return self._replica.gradients

    @property
    def parameters(self) -> Tensor:
        """The parameters of the whole model; read in place, only if there is one shard."""
        return self._replica.parameters

    @property
    def parts(self) -> Sequence[Tensor]:
        """The parameters of each shard."""
        return self._replica.parts

    # Coming and going.

    def start(self, coordinator: Address, initial: Values | Snapshot) -> None:
        """Take part: returns once the first parameters are in place. Those of one worker become everyone's.

        A snapshot of another run brings the optimizer's state with it, and the count of iterations.
        """
        hello = m.WorkerHello(self.number, os.getpid())
        shapes = [m.Shape(tensor.name, tensor.shape) for tensor in self._replica.space.tensors]
        dtype = str(self._replica.dtype).removeprefix("torch.")
        try:
            self._control.start(coordinator, hello, m.Describe(shapes, dtype, self._optimizer))
        except (ChannelClosed, Timeout, Unreachable) as error:
            raise PeerLost(f"the coordinator is gone, or was never there: {error}") from None
        begin = self._control.wait_for(m.Begin, self.job.start_within)
        self.number, self.incarnation, self.places = begin.worker, begin.incarnation, begin.places
        self._machine = Machine(begin.worker, len(begin.places), incarnation=begin.incarnation)
        self._replica.arrange(begin.places)
        self._servers = begin.servers
        self._connect(begin)
        self._running = True
        if begin.initial:
            self._hand_over(initial if isinstance(initial, Snapshot) else Snapshot(initial))
        self._pull = Handle(self.wait, "pull", -1, range(len(self.places)))
        self._owed = len(self.places)
        for shard, pull in self._machine.begin(self._clock()):
            self._lines.send(self.places[shard], m.Pull(shard, pull.iteration))
        self._go_on()

    def writable(self) -> None:
        """Wait until the servers have taken what was last pushed: from then on `gradients` may be written to."""
        self._check_running()
        with self._pump.mine():
            self._wait(lambda: not self._lines.sending, None, "the servers to take the last gradient")

    def give_back(self) -> None:
        """What was read in place is not needed any more: the servers may write there."""
        with self._pump.mine():
            self._replica.give_back(range(len(self.places)))
            self._loop.run_once(0.0)  # who computes now may not come back to the loop for long

    def close(self, *, well: bool = True) -> None:
        """Leave: in good order if nothing has gone wrong, here or with the training; else as if it had died."""
        if self._running and self._failed is None and well:
            self._control.send(m.Finished())
            self._control.verdict(VERDICT)
        self._running = False
        self._pump.close()
        self._control.close()
        self._loop.close()
        self._replica.segment.close()
        self._lines.close()

    # Training.

    def push(
        self, gradients: Values | None = None, *, shards: Iterable[int] | None = None, answer: bool = True
    ) -> Handle:
        """Send the gradient of the iteration under way: what is in `self.gradients`, or this.

        `self.gradients` must not be written to until the handle is done or `clock` has returned. With `shards`, only
        the parts of these are sent; the others must follow. Without `answer` the handle is done only when the pull is.
        """
        with self._pump.mine():
            self._prepare(gradients)
            handle = self._push(range(len(self.places)) if shards is None else list(shards), answer=answer)
        self._pump.leave()
        return handle

    def pull(self) -> Handle:
        """Ask for the parameters to go on from. They are written to `self.parameters` as they come.

        The handle is done when enough have come to go on: all, unless the model lets workers start with fewer.
        """
        with self._pump.mine():
            handle = self._send_pull()
        self._pump.leave()
        return handle

    def clock(self) -> int:
        """End the iteration: wait for the parameters, and go on to the iteration that this returns."""
        with self._pump.mine():
            if self._pull is None:
                if self.job.barrier:
                    self._meet()
                self._send_pull()
            iteration = self._go_on()
        self._leave_late_blocks()
        return iteration

    def step(self, gradients: Values | None = None) -> int:
        """A push and a clock, with one message to each shard instead of two."""
        if self.job.barrier:
            self.push(gradients)
            return self.clock()
        with self._pump.mine():
            self._prepare(gradients)
            self._push(range(len(self.places)), answer=False, pull=True)
            self._ask()
            iteration = self._go_on()
        self._leave_late_blocks()
        return iteration

    def wait(self, until: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Until that holds. Raises what has ended the run, or WaitedTooLong after the timeout."""
        with self._pump.mine():
            self._wait(until, timeout, what)

    def _wait(self, until: Callable[[], bool], timeout: float | None, what: str) -> None:
        deadline = None if timeout is None else self._clock() + timeout
        try:
            self._loop.run(lambda: until() or self._failed is not None, deadline)
        except Timeout:
            raise WaitedTooLong(f"{what} took more than {timeout:g} s") from None
        if not until():
            raise self._verdict()

    def change(self, sync: str, shard: int | None = None) -> None:
        """Put another synchronization model in force, on all shards or on one."""
        self._check_running()
        error = self._control.ask(m.Change(sync, shard), m.Changed, self.job.silence).error
        if error is not None:
            raise WrongRequest(error)

    def snapshot(self) -> Taking:
        """A copy of everything that the servers have, after all that this worker has pushed; `finish()` gives it."""
        self._check_running()
        taking = Taking(
            self.job,
            self._network,
            self.places,
            self._servers,
            self._replica.dtype,
            ended=lambda: self._failed,
            clock=self._clock,
        )
        taking.begin()
        return taking

    # What comes in.

    def _heard(self, message: m.AnyMessage, incoming: Incoming, peer: str) -> None:
        match message:
            case m.Parameters():
                self._arrived(message, incoming)
            case m.Answer():
                self._answered(message)
            case m.Failed(kind, words):
                self._failure = error_of(kind, words)
            case _:
                self._failure = WrongRequest(f"{peer} sent {type(message).__name__}")

    def _lost(self, lost: PeerLost) -> None:
        self._failure = self._failure or lost

    def _arrived(self, message: m.Parameters, incoming: Incoming) -> None:
        self._owed -= 1
        self._take(message, incoming)
        self._origin = message.origin
        if message.held_for:
            self.held_for.update(message.held_for)
        self._weigh = message.weigh
        self._settle(message.shard, message.iteration, "applied")
        grant = Grant(
            self._machine.worker,
            message.iteration,
            message.version,
            message.clock,
            message.next,
            NO_REASON,
            message.stop,
            self.incarnation,
        )
        decisions = self._machine.granted(message.shard, grant, self._clock())
        self._decided(decisions)

    def _take(self, message: m.Parameters, incoming: Incoming) -> None:
        """Put a block in place, or keep it until the next start; one that is older than what has come is of no use."""
        shard = message.shard
        if not self._machine.is_new(shard, message.next):
            incoming.release()
            return
        if not self._machine.waits_for_all or self._replica.aside.landed(shard, incoming.payload):
            self._replica.set_aside(shard, incoming, message.version)
        else:
            self._replica.take(shard, incoming, lasting=message.pull is not None)
            self.versions[shard] = message.version
        self._machine.told(shard, *(message.pull or (1.0, 0.0)))

    def _must_wait(self, message: m.Parameters) -> bool:
        """Would a block change what the worker computes with, or may go on to compute with before it is complete?"""
        return not (self._machine.waits_for_all and self._machine.is_new(message.shard, message.next))

    def _answered(self, answer: m.Answer) -> None:
        self.dropped += answer.outcome == "dropped"
        if answer.outcome != "applied":
            self._lines.not_applied(answer.shard, answer.iteration)
        if answer.outcome == "refused":
            self.refused += 1
            if self._not_finite == "raise":
                name = self._replica.what_is_not_finite()
                wrong = f"parameter {name!r} has NaN or Inf in it" if name else "the sum with the others overflows"
                self._failure = NotFinite(f"the gradient of iteration {answer.iteration} was refused: {wrong}")
        self._settle(answer.shard, answer.iteration, answer.outcome)

    def _settle(self, shard: int, iteration: int, outcome: m.Outcome) -> None:
        """It is known what became of a push."""
        handle = self._pushes.pop((shard, iteration), None)
        if handle is not None:
            handle.arrived(shard, outcome)

    # Single steps.

    def _prepare(self, gradients: Values | None) -> None:
        self._check_running()
        if gradients is not None:
            self._wait(lambda: not self._lines.sending, None, "the servers to take the last gradient")
            self._replica.write(gradients)

    def _push(self, shards: Sequence[int], *, answer: bool, pull: bool = False) -> Handle:
        lines = self._lines
        if not lines.can_encode(shards):
            self._wait(lambda: lines.can_encode(shards), None, "the servers to take the last gradient")
        push = self._machine.push(self._replica.significance() if self._weigh else 0.0)
        i = push.iteration
        handle = Handle(self.wait, "push", i, shards)
        for shard in shards:
            self._pushes[shard, i] = handle
            norms = self._replica.norms(shard) if self._lars else {}
            held_back = lines.encode(shard, i)
            message = m.Push(shard, i, i, push.significance, push.stop, answer, pull, norms, self.rates, held_back)
            self._replica.give_back([shard])
            lines.send_row(self.places[shard], message)
        return handle

    def _send_pull(self) -> Handle:
        self._check_running()
        pull = self._ask()
        for place in self.places:
            self._lines.send(place, m.Pull(place.shard, pull.iteration, pull.stop))
        assert self._pull is not None
        return self._pull

    def _ask(self) -> Pulled:
        if self._pull is not None:
            raise WrongRequest(f"iteration {self.iteration} has asked already; clock() waits for the answer")
        self._pull = Handle(self.wait, "pull", self.iteration, range(len(self.places)))
        self._owed += len(self.places)
        pull, decisions = self._machine.pull(self._clock())
        self._decided(decisions)
        return pull

    def _hand_over(self, first: Snapshot) -> None:
        """Give the servers what to begin with."""
        for name, row in [*first.rows.items(), (m.VALUES, first.values)]:
            self._replica.write(row)
            for place in self.places:
                last = m.Initial(place.shard, first.clock, first.steps, first.numbers)
                self._lines.send_row(place, last if name == m.VALUES else m.Row(place.shard, name))
            self._wait(lambda: not self._lines.sending, None, "handing over the first parameters")

    def _connect(self, begin: m.Begin) -> None:
        try:
            self._lines.connect(begin, self._clock() + self.job.start_within)
        except PeerLost as lost:  # it has ended: the coordinator may know why
            raise self._control.verdict(VERDICT) or lost from None

    def _go_on(self) -> int:
        self._wait(self._can_go_on, None, "the next parameters")
        self._next = self._pull = None
        return self.iteration

    def _can_go_on(self) -> bool:
        """Who goes on without an answer of all shards still has to know that all have taken the gradient."""
        return self._next is not None and not (self._owed and self._lines.sending)

    def _leave_late_blocks(self) -> None:
        """Blocks that are still to come are taken from the wire behind the caller's back: servers wait for readers."""
        if self._owed:
            self._pump.leave()

    def _decided(self, decisions: Iterable[Start | SetPullTimer]) -> None:
        for decision in decisions:
            match decision:
                case Start(take=take):
                    self._next = decision
                    for shard in take:
                        version = self._replica.put_in_place(shard)
                        if version is not None:
                            self.versions[shard] = version
                    if self._pull is not None:
                        self._pull.over()
                case SetPullTimer(at=at, timer=timer):
                    self._loop.call_at(at, partial(self._timer_fired, timer))

    def _timer_fired(self, timer: int) -> None:
        self._decided(self._machine.timer_fired(timer, self._clock()))

    def _meet(self) -> None:
        """The coordinator's barrier: when every shard has taken this worker's push, wait for the other workers."""
        self._wait(lambda: not self._pushes, None, f"the push of iteration {self.iteration}")
        self._control.ask(m.AtBarrier(self.iteration), m.PassBarrier, within=None)

    def _check_running(self) -> None:
        if not self._running:
            raise WrongRequest("this worker has not started, or has ended; call start() first")
        if self._failed is not None:
            raise self._verdict()

    def _under_way(self) -> bool:
        return self._failed is None and bool(self._owed or self._lines.sending or self._pushes)

    @property
    def _failed(self) -> NodeError | None:
        return self._failure or self._control.error

    def _verdict(self) -> NodeError:
        """Why the run is over. A server may have ended because of another node: the coordinator knows."""
        if isinstance(self._failure, PeerLost):
            return self._control.verdict(VERDICT) or self._failure
        failed = self._failed
        assert failed is not None
        return failed
