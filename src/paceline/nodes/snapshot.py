"""A copy of all parameters, and of what the optimizer remembers of them, taken while the run goes on.

It has lines of its own to the servers, so that nothing on the way of a gradient waits for it. Each shard is copied
between two of its updates: after all that was sent to it before, and at one clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

import msgspec
import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from paceline.nodes import messages as m
from paceline.nodes.errors import NodeError, PeerLost, WrongRequest, error_of
from paceline.nodes.job import Job, Network
from paceline.nodes.replica import Values
from paceline.wire import (
    Address,
    Channel,
    ChannelClosed,
    FrameError,
    Incoming,
    Loop,
    Timeout,
    Unreachable,
    WireError,
)

LOOK = 0.5  # seconds after which to look whether the run is still on


class Snapshot(Struct):
    """The parameters, and by name what the optimizer remembers of each element and what of all of them.

    `clock` is how many iterations there were and `steps` how many steps, on the shard that is furthest behind.
    """

    values: Values
    rows: dict[str, Tensor] = {}
    numbers: dict[str, m.Number] = {}
    clock: int = 0
    steps: int = 0


def number_of(number: Tensor) -> m.Number:
    """A number of torch as it travels."""
    dtype = str(number.dtype).removeprefix("torch.")
    try:
        return msgspec.convert((dtype, number.item()), m.Number)
    except msgspec.ValidationError:
        raise WrongRequest(f"the optimizer remembers a number of type {number.dtype}, which cannot be saved") from None


def tensor_of(number: m.Number) -> Tensor:
    """The other way."""
    return torch.tensor(number.value, dtype=getattr(torch, number.dtype))


class Taking:
    """A snapshot on its way. `ended` says what has ended the run, if anything has."""

    def __init__(
        self,
        job: Job,
        network: Network,
        places: Sequence[m.Place],
        servers: Mapping[int, Address],
        dtype: torch.dtype,
        *,
        ended: Callable[[], NodeError | None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._job, self._network, self._dtype = job, network, dtype
        self._places = {place.shard: place for place in places}
        self._servers = servers
        self._ended = ended
        self._clock = clock
        self._loop = Loop(clock=clock)
        self._saved: dict[int, m.Saved] = {}
        self._rows: dict[str, Tensor] = {}
        self._missing: set[tuple[int, str]] = set()
        self._failure: NodeError | None = None

    def begin(self) -> None:
        """Returns when every shard has been copied, at its server: from then on it may change again."""
        deadline = self._clock() + self._job.start_within
        hello = m.encode(m.OperatorHello(os.getpid()))
        try:
            for server in sorted({place.server for place in self._places.values()}):
                try:
                    channel = self._network.connect(self._servers[server], hello, self._job.digest(), deadline)
                except (ChannelClosed, Timeout, Unreachable) as error:
                    raise self._ended() or PeerLost(f"server {server} is gone: {error}") from None
                channel.peer = f"server {server}"
                channel.sink = self._landing
                self._loop.add(channel, self._message, self._closed)
                channel.send(m.encode(m.Save()))
            self._wait(lambda: len(self._saved) == len(self._places))
        except BaseException:
            self._loop.close()
            raise

    def finish(self) -> Snapshot:
        """Wait for all of it, on any thread."""
        try:
            self._wait(lambda: not self._missing)
        finally:
            self._loop.close()
        values = self._rows.pop(m.VALUES)
        numbers = next(iter(self._saved.values())).numbers
        clock = min(saved.clock for saved in self._saved.values())
        steps = min(saved.steps for saved in self._saved.values())
        return Snapshot(values, self._rows, numbers, clock, steps)

    def _wait(self, until: Callable[[], bool]) -> None:
        while not until():
            failure = self._failure or self._ended()
            if failure is not None:
                raise failure
            try:
                self._loop.run(lambda: until() or self._failure is not None, self._clock() + LOOK)
            except Timeout:
                continue

    def _message(self, channel: Channel, incoming: Incoming) -> None:
        match m.decode(incoming.header):
            case m.Saved() as saved:
                self._saved[saved.shard] = saved
                self._missing.update((saved.shard, name) for name in saved.rows)
            case m.Row(shard, name):
                self._missing.discard((shard, name))
                incoming.release()
            case m.Failed(kind, words):
                self._failure = error_of(kind, words)
            case other:
                self._failure = WrongRequest(f"{channel.peer} sent {type(other).__name__}")

    def _landing(self, header: bytes, size: int) -> memoryview:
        """Rows land where they belong in the whole model's."""
        message = m.decode(header)
        if not isinstance(message, m.Row) or (message.shard, message.name) not in self._missing:
            raise FrameError("", f"a {type(message).__name__} that was not announced came with {size} bytes")
        place = self._places[message.shard]
        if message.name not in self._rows:
            whole = max(place.stop for place in self._places.values())
            self._rows[message.name] = torch.zeros(whole, dtype=self._dtype)
        view = self._rows[message.name][place.start : place.stop].numpy().view(np.uint8).data
        if view.nbytes != size:
            raise FrameError("", f"{size} bytes came for {view.nbytes} of shard {message.shard}")
        return view

    def _closed(self, channel: Channel, error: WireError) -> None:
        if self._missing or len(self._saved) < len(self._places):
            self._failure = self._failure or PeerLost(f"{channel.peer} is gone: {error.why}")
