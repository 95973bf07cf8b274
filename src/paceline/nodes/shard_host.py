"""One shard on a server: the machine that decides, and the memory that its commands are carried out on.

The machine knows no tensor, so it may run ahead of the memory: events are decided on as they come, and their commands
wait in a row until they can be carried out. What they may have to wait for is

- the first parameters, which one of the workers gives;
- a buffer to write an update into, while the pulls that were granted before are still being read;
- the norms of tensors that are cut between servers, for LARS.

A gradient stays where it landed until it has been used: in the segment that its worker shares with the server, or in
this shard's landing place for what comes over a socket. Only then may the worker write the next one there. One that is
encoded is decoded on arrival, into a row that the shard has for each worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from paceline.nodes import messages as m
from paceline.nodes import shard_state
from paceline.nodes.encoding import add_norms, check_lars
from paceline.nodes.errors import WrongRequest
from paceline.nodes.job import Job
from paceline.nodes.line import Format, Gradient, Line
from paceline.nodes.memory import tensor_over
from paceline.nodes.norm_exchange import NormExchange, partners
from paceline.observe.trace import Trace
from paceline.params import Optimizer, ParameterError, Space
from paceline.params.backups import Backups
from paceline.params.codecs import codec_of
from paceline.params.crew import Crew
from paceline.params.norms import Norms
from paceline.params.store import Store
from paceline.sync import (
    Advance,
    Apply,
    Command,
    Drop,
    Event,
    Grant,
    Hold,
    Joined,
    Left,
    Pulled,
    Pushed,
    SetModel,
    SetTimer,
    Shard,
    TimerFired,
    parse,
)
from paceline.sync.compensation import Compensation
from paceline.wire import Channel, Incoming, Segment

SUMMED_PER_SECOND = 8e9  # bytes, roughly: how long to wait for the rest of a round before summing a part of it


class Saving(NamedTuple):
    """A copy is to be sent to whoever is at the other end."""

    channel: Channel


class Compensating(NamedTuple):
    """The model has been changed: what is decided from here on is compensated in this way."""

    how: Compensation | None


class Gone(NamedTuple):
    """A worker has left: none of its gradients comes any more."""

    member: m.Member


Task = Command | Saving | Compensating | Gone


class ShardHost:
    """`call_at` runs a function at a time; `tell_partners` sends norms to these other shards.

    `late` says by how many seconds to delay the next answer to a pull, where slowness was asked for.
    """

    def __init__(
        self,
        place: m.Place,
        places: list[m.Place],
        space: Space,
        dtype: torch.dtype,
        job: Job,
        optimizer: Optimizer,
        members: list[m.Member],
        *,
        clock: Callable[[], float],
        call_at: Callable[[float, Callable[[], None]], object],
        tell_partners: Callable[[m.Norms, set[int]], None],
        crew: Crew | None = None,
        trace: Trace | None = None,
        late: Callable[[], float] | None = None,
    ) -> None:
        self.place = place
        self.initialised = False
        self.refused = 0  # gradients that were not finite
        self.lost_residual: dict[int, float] = {}  # by worker that has left: the norm of what its codec held back
        self.nbytes = place.size * dtype.itemsize
        self.patience = max(0.002, 2 * self.nbytes / SUMMED_PER_SECOND)
        self._codec = codec_of(job.codec)
        self._takes = Format(place.shard, place.size, dtype, self._codec)
        workers = [member.worker for member in members]
        self.machine = Shard(job.sync, workers, job.seed, index=place.shard, update=job.update)
        self.segments = (Segment(self.nbytes), Segment(self.nbytes))
        first, second = (tensor_over(segment.view, dtype) for segment in self.segments)
        self.store = Store(
            optimizer, space, place.start, place.stop, (first, second), deterministic=job.deterministic, crew=crew
        )
        self._given_back = partial(self._read, 0), partial(self._read, 1)  # by buffer
        self._update = job.update
        self._clock = clock
        self._call_at = call_at
        self._trace = trace
        self._late = late
        others = partners(places, space)[place.shard] if optimizer.name == "lars" else set()
        self._exchange = NormExchange(place.shard, others) if others else None
        self._told = 0  # the round up to which the partners know this shard's norms
        self._tell_partners = tell_partners
        self._lines: dict[int, Line] = {}
        self._held_for: dict[int, tuple[int, ...]] = {}  # by worker whose pull is held: on whom it waits
        self._origin = 0  # how many iterations there were before this run
        self._first_rows: dict[str, Tensor] = {}  # what the optimizer is to remember from before
        self._todo: deque[tuple[Task, Gradient | None]] = deque()
        self._carry_out: dict[type, Callable[[Any, Gradient | None], None]] = {
            Apply: self._apply,
            Drop: self._drop,
            Advance: self._advance,
            Grant: self._grant,
            SetTimer: self._set_timer,
            Saving: self._save,
            Compensating: self._compensate,
            Gone: self._forget,
        }
        self._gathered: dict[int, list[Gradient]] = {}  # by open round
        self._unsummed = False  # has anything been gathered since the last time there was nothing to do?
        self._backups: Backups | None = None  # what workers were given, where delays are compensated
        self._compensate(Compensating(self.machine.model.compensation))

    # What happens.

    def connect(self, channel: Channel, member: m.Member) -> None:
        """From here on this very member is named in what comes over the channel."""
        self._lines[member.worker] = Line(channel, member, self._takes)
        for segment in self.segments:
            channel.share(segment)

    def give_row(self, member: m.Member, name: str, incoming: Incoming) -> None:
        """A row of what the optimizer remembers from before this run."""
        row = self._first(member, incoming)
        self._first_rows[name] = row.values.clone()
        row.free()

    def give_first(self, member: m.Member, initial: m.Initial, incoming: Incoming) -> None:
        """The first parameters have come, and before them all rows that belong to them."""
        first = self._first(member, incoming)
        try:
            shard_state.load(self.store, first.values, initial, self._first_rows)
        except ParameterError as error:
            raise WrongRequest(f"worker {member.worker}: {error}") from None
        self._first_rows.clear()
        self._origin = initial.clock
        self.initialised = True
        first.free()
        self.work()

    def save(self, channel: Channel) -> None:
        """Send a copy, after all that has been decided so far has been carried out."""
        self._todo.append((Saving(channel), None))
        self.work()

    def push(self, member: m.Member, push: m.Push, incoming: Incoming) -> None:
        gradient = self._line(member).gradient(push, incoming)
        if push.rates is not None:
            try:
                self.store.updater.check_rates(push.rates)
            except ParameterError as error:
                raise WrongRequest(f"worker {member.worker}: {error}") from None
        life, stop = member.incarnation, push.stop
        self._decide(Pushed(member.worker, push.iteration, life, push.sequence, push.significance, stop), gradient)

    def pull(self, member: m.Member, pull: m.Push | m.Pull) -> None:
        self._decide(Pulled(member.worker, pull.iteration, member.incarnation, pull.stop))

    def join(self, member: m.Member) -> None:
        self._decide(Joined(member.worker, member.incarnation))

    def leave(self, member: m.Member) -> None:
        line = self._lines.get(member.worker)
        if line is not None and line.member == member:
            del self._lines[member.worker]
            line.close()
            if line.residual:
                add_norms(self.lost_residual, {member.worker: line.residual})
        self._todo.append((Gone(member), None))
        self._decide(Left(member.worker, member.incarnation))

    def change(self, sync: str) -> None:
        check_lars(self._codec, self.store.updater.optimizer, sync, self._update)
        self._todo.append((Compensating(parse(sync).compensation), None))
        self._decide(SetModel(sync))

    def take_norms(self, norms: m.Norms) -> None:
        """A partner's part of the norms of tensors that both have a part of."""
        if self._exchange is not None:
            self._exchange.theirs(norms.shard, norms.to, norms.rounds)
            self.work()

    def landing(self, member: m.Member, message: m.Push | m.Initial | m.Row, size: int) -> memoryview | None:
        """Where a payload of this worker is to land; None while the one before it is still in use."""
        line = self._lines.get(member.worker)
        if line is None:
            raise WrongRequest(f"worker {member.worker} is not connected to shard {self.place.shard}")
        landing = line.landing(message, size)
        if landing.taken:
            self._absorb(line)
        if landing.taken:
            landing.paused = True
            return None
        landing.taken = True
        return landing.view

    @property
    def pending(self) -> bool:
        """Are there gradients that could be summed while there is nothing else to do?"""
        return self._unsummed and bool(self._gathered)

    def idle(self) -> None:
        """Sum what has come of a round, while it waits for the rest."""
        self._unsummed = False
        self.store.absorb()
        for line in self._lines.values():
            for round_ in [r for r, gradient in line.gathered.items() if not self.store.holds(r, gradient.key)]:
                line.gathered.pop(round_).free()

    def close(self) -> None:
        for segment in self.segments:
            segment.close()

    # Carrying out.

    def _decide(self, event: Event, gradient: Gradient | None = None) -> None:
        """Hand an event to the machine. That a pull is held needs nothing to be done."""
        now = self._clock()
        commands = self.machine.handle(event, now)
        if self._trace is not None:
            self._trace.record(self.place.shard, now, event, commands)
        for command in commands:
            kind = type(command)
            if isinstance(command, Hold):
                self._held_for[command.worker] = command.reason.waiting_for
            else:
                self._todo.append((command, gradient if kind is Apply or kind is Drop else None))
        if self._todo:
            self.work()

    def work(self) -> None:
        """Carry out what can be carried out now."""
        todo = self._todo
        while todo and self.initialised and self._ready(todo[0][0]):
            command, gradient = todo.popleft()
            self._carry_out[type(command)](command, gradient)

    def _ready(self, command: Task) -> bool:
        if isinstance(command, Advance):
            return self.store.buffers.can_update and (
                self._exchange is None or self._have_norms(command, self._exchange)
            )
        return not isinstance(command, Apply) or command.round is not None or self.store.buffers.can_update

    def _have_norms(self, advance: Advance, exchange: NormExchange) -> bool:
        if advance.to > self._told:
            self._told = advance.to
            rounds = {round_: self.store.partial_norms(round_) for round_ in self._gathered if round_ < advance.to}
            exchange.mine(rounds)
            self._tell_partners(m.Norms(self.place.shard, advance.to, rounds), exchange.others)
        return exchange.complete(advance.to)

    def _apply(self, apply: Apply, gradient: Gradient | None) -> None:
        assert gradient is not None
        if apply.round is not None:
            self.store.gather(apply.round, gradient.key, gradient.row)
            self._gathered.setdefault(apply.round, []).append(gradient)
            gradient.line.gathered[apply.round] = gradient
            self._unsummed = True
            return
        view, share = self.machine.view, 1 / max(self.machine.view.live, 1)
        norms = Norms({name: (w, g * share * share) for name, (w, g) in gradient.push.norms.items()})
        rates, given = gradient.push.rates, None
        if self._backups is not None:
            given = self._backups.of(apply.worker, gradient.line.member.incarnation)
            self._backups.before_update(self.store.values)
        taken = self.store.apply(
            gradient.values, share=share, progress=self._origin + view.clock, norms=norms, rates=rates, given=given
        )
        gradient.free()
        self._tell_outcome(gradient, taken)

    def _advance(self, advance: Advance, _: Gradient | None) -> None:
        linear = getattr(self.machine.model, "scaling", "mean") == "linear"
        of = max(self.machine.view.live, 1) if linear else None
        rounds = sorted(round_ for round_ in self._gathered if round_ < advance.to)
        if self._backups is not None and rounds:
            self._backups.before_update(self.store.values)
        for round_ in rounds:
            norms = None if self._exchange is None else self._exchange.total(round_)
            gradients = self._gathered.pop(round_)
            rates = min(gradients, key=lambda gradient: gradient.key).push.rates
            closed = self.store.close(round_, progress=self._origin + round_, of=of, norms=norms, rates=rates)
            for gradient in gradients:
                gradient.line.gathered.pop(round_, None)
                gradient.free()
                self._tell_outcome(gradient, gradient.key not in closed.refused and not closed.overflowed)
        if self._exchange is not None:
            self._exchange.forget(advance.to)

    def _grant(self, grant: Grant, _: Gradient | None) -> None:
        line = self._lines.get(grant.worker)
        if line is None or line.member.incarnation != grant.incarnation:
            return
        if line.gathered:
            self._absorb(line)
        if self._backups is not None:
            self._backups.give(grant.worker, grant.incarnation)
        model = self.machine.model
        held_for = self._held_for.pop(grant.worker, ())
        parameters = m.Parameters(
            self.place.shard,
            grant.iteration,
            grant.version,
            grant.clock,
            grant.next,
            grant.stop,
            model.weighs,
            held_for,
            self._origin,
            (model.b, model.tau_pull) if model.b < 1 else None,
        )
        delay = self._late() if self._late is not None else 0.0
        if delay > 0:  # a copy, because only this answer is to be late: a buffer lent for so long would stop updates
            copied = memoryview(bytearray(self.store.values.numpy().view(np.uint8).data))
            self._call_at(self._clock() + delay, partial(line.send, parameters, copied))
            return
        buffer = self.store.buffers.lend()
        line.send(parameters, self.segments[buffer].view, self._given_back[buffer])

    def _compensate(self, compensating: Compensating, _: Gradient | None = None) -> None:
        """Who has been given something before has no backup yet; its next gradient is taken as it is."""
        how = None if self._update == "round" else compensating.how
        self._backups = None if how is None else self._backups or Backups()
        self.store.compensate(how)

    def _forget(self, gone: Gone, _: Gradient | None) -> None:
        if self._backups is not None:
            self._backups.forget(gone.member.worker, gone.member.incarnation)

    def _read(self, buffer: int) -> None:
        """A pull has been sent, and its buffer may be written into once nobody else reads it."""
        self.store.buffers.give_back(buffer)
        if self._todo:
            self.work()

    def _save(self, saving: Saving, _: Gradient | None) -> None:
        if saving.channel.closed:
            return
        try:
            messages = shard_state.copied(self.store, self.place.shard, self._origin + self.machine.view.clock)
        except WrongRequest as error:
            messages = [(m.Failed(error.kind, str(error)), None)]
        for message, payload in messages:
            saving.channel.send(m.encode(message), payload)

    def _drop(self, drop: Drop, gradient: Gradient | None) -> None:
        if gradient is None:
            return  # a pull of somebody who is not in the run any more
        gradient.free()
        gradient.answer(drop.answer or "dropped", str(drop.reason))

    def _set_timer(self, timer: SetTimer, _: Gradient | None) -> None:
        self._call_at(timer.at, lambda: self._decide(TimerFired(timer.timer)))

    def _absorb(self, line: Line) -> None:
        """Sum what was only gathered of one worker, because its memory is needed again."""
        for gradient in line.gathered.values():
            self.store.absorb(gradient.key)
            gradient.free()
        line.gathered.clear()

    def _tell_outcome(self, gradient: Gradient, taken: bool) -> None:
        if not taken:
            self.refused += 1
        gradient.answer("applied" if taken else "refused", "" if taken else "it has NaN or Inf in it")

    def _first(self, member: m.Member, incoming: Incoming) -> Gradient:
        if self.initialised:
            raise WrongRequest(f"shard {self.place.shard} has its first parameters already")
        return self._line(member).first(incoming)

    def _line(self, member: m.Member) -> Line:
        line = self._lines.get(member.worker)
        if line is None or line.member is not member:
            raise WrongRequest(f"worker {member.worker} is not connected to shard {self.place.shard}")
        return line
