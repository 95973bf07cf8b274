"""A worker under esync: it trains a replica, and what it pushes is what a round of local iterations has made of it.

worker.begin_round(sum_up)
while not worker.local_step(step):   # `step` changes the replica
    ...
worker.end_round()                   # worker.parameters are those of all together
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from paceline.nodes import messages as m
from paceline.nodes.coordinator import no_payload
from paceline.nodes.errors import WaitedTooLong, WrongRequest
from paceline.nodes.job import Job
from paceline.nodes.local_rounds import LocalRounds
from paceline.nodes.worker import Worker
from paceline.sync import parse
from paceline.sync.models.esync import ESync
from paceline.wire import Address, Channel, ChannelClosed, Incoming, Timeout, Unreachable


class LocalWorker(Worker):
    """The job's model must be `esync`."""

    def __init__(self, job: Job, *arguments: Any, **options: Any) -> None:
        model = parse(job.sync)
        if not isinstance(model, ESync):
            raise WrongRequest(f"{job.sync} has no local iterations; esync has")
        super().__init__(job, *arguments, **options)
        self.rounds = LocalRounds(model, self._clock, self._contribute)
        self._sum_up: Callable[[], None] | None = None

    def begin_round(self, sum_up: Callable[[], None]) -> None:
        """Begin a round of local iterations on the parameters that have come.

        `sum_up` makes `gradients` what the round has done. It is called when that is over, which may be while the
        worker computes, and on another thread.
        """
        self._sum_up = sum_up
        with self._pump.mine():
            self._check_running()
            self._wait(lambda: not self._lines.sending, None, "the servers to take the last round")
            self.rounds.begin(self._machine.iteration)
            self._hear()
        self._pump.leave()

    def local_step(self, step: Callable[[], None]) -> bool:
        """Do a local iteration, unless the round has ended before. Is the round over?

        If so, what it has done is on its way, and `end_round` waits for the parameters of the next.
        """
        with self._pump.mine():
            self._check_running()
            self._loop.run_once(0)  # an answer may have come
            if not self.rounds.over:
                step()
                self.rounds.stepped()
                self._hear()
            over = self.rounds.over
        self._pump.leave()
        return over

    def end_round(self) -> int:
        """Wait for the parameters of the next round, and return which that is. An all-reduce has them already."""
        if self.rounds.model.aggregate == "all_reduce":
            self._machine.iteration += 1
            return self.iteration
        with self._pump.mine():
            return self._go_on()

    def _hear(self) -> None:
        """Wait until it is known how to go on. A State Server that says nothing for long counts as lost."""
        try:
            self._wait(lambda: self.rounds.settled, self.job.silence, "an answer of the State Server")
        except WaitedTooLong:
            self.rounds.lost()
        if self.rounds.soon:
            with suppress(WaitedTooLong):
                self._wait(lambda: not self.rounds.awaits, self.rounds.soon, "an answer of the State Server")

    def _contribute(self) -> None:
        if self.rounds.model.aggregate == "all_reduce":
            return  # whoever drives this worker does it
        assert self._sum_up is not None
        self._sum_up()
        self._push(range(len(self.places)), answer=False, pull=True)
        self._ask()

    def _connect(self, begin: m.Begin) -> None:
        super()._connect(begin)
        channel = None if begin.state_server is None else self._reach(begin.state_server)
        self.rounds.connected(channel)

    def _reach(self, state_server: Address) -> Channel | None:
        """A channel to the State Server, or None if it has gone already."""
        hello = m.encode(m.WorkerHello(self.number, os.getpid(), self.incarnation))
        deadline = self._clock() + self.job.start_within
        with suppress(ChannelClosed, Timeout, Unreachable):
            channel = self._network.connect(state_server, hello, self.job.digest(), deadline)
            channel.peer = "the State Server"
            channel.sink = no_payload
            self._loop.add(channel, self._from_state_server, lambda *_: self.rounds.lost())
            return channel
        return None

    def _from_state_server(self, _: Channel, incoming: Incoming) -> None:
        try:
            message = m.decode(incoming.header)
        except WrongRequest:
            message = m.Alive()
        if isinstance(message, m.State):
            self.rounds.answered(message)
        else:
            self.rounds.lost()

    def _under_way(self) -> bool:
        awaited = self.rounds.model.query == "nonblocking" and not self.rounds.over and self._failed is None
        return awaited or super()._under_way()
