"""A worker's lines to the servers: gradients go out on them, as they are or encoded, and parameters come in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from paceline.nodes import messages as m
from paceline.nodes.encoding import Encoding
from paceline.nodes.errors import PeerLost
from paceline.nodes.job import Job, Network
from paceline.nodes.replica import Replica
from paceline.nodes.traffic import Traffic
from paceline.params.codecs import Codec
from paceline.wire import Channel, ChannelClosed, FrameError, Incoming, Loop, Timeout, Unreachable, WireError

Heard = Callable[[m.AnyMessage, Incoming, str], None]  # a message, what came with it, and who sent it


class ServerLines:
    """`heard` is told of every message and `lost` of a server that is gone. `must_wait` says whether parameters that
    come over a socket may not be written yet to where the worker computes with them.
    """

    def __init__(
        self,
        job: Job,
        network: Network,
        loop: Loop,
        replica: Replica,
        codec: Codec | None,
        *,
        heard: Heard,
        lost: Callable[[PeerLost], None],
        must_wait: Callable[[m.Parameters], bool],
    ) -> None:
        self.traffic = Traffic()
        self.encoding: Encoding | None = None
        self.sending = 0  # how many shards have not taken what was last sent
        self._job = job
        self._network = network
        self._loop = loop
        self._replica = replica
        self._codec = codec
        self._heard = heard
        self._lost = lost
        self._must_wait = must_wait
        self._channels: dict[int, Channel] = {}  # by server
        self._decoded: tuple[bytes, m.AnyMessage] = (b"", m.Alive())  # the last header that came with a payload

    def connect(self, begin: m.Begin, deadline: float) -> None:
        """Reach all servers; PeerLost if one of them has ended."""
        if self._codec is not None:
            self.encoding = Encoding(self._codec, begin.places, self._replica.gradients)
        hello = m.encode(m.WorkerHello(begin.worker, os.getpid(), begin.incarnation))
        for server in sorted({place.server for place in begin.places}):
            try:
                channel = self._network.connect(begin.servers[server], hello, self._job.digest(), deadline)
            except (ChannelClosed, Timeout, Unreachable) as error:
                raise PeerLost(f"server {server} is gone: {error}") from None
            channel.peer = f"server {server}"
            channel.sink = self._landing
            channel.share(self._replica.segment)
            if self.encoding is not None:
                channel.share(self.encoding.segment)
            self._channels[server] = channel
            self._loop.add(channel, self._message, partial(self._closed, server))

    def close(self) -> None:
        if self.encoding is not None:
            self.encoding.close()

    # What goes out. Where a server is gone nothing does: whoever waits for its answer is told why.

    def send(self, place: m.Place, message: m.AnyMessage) -> None:
        channel = self._channels[place.server]
        if not channel.closed:
            channel.send(m.encode(message))

    def send_row(self, place: m.Place, message: m.Push | m.Initial | m.Row) -> None:
        """The same, with what the worker has written for that shard."""
        channel = self._channels[place.server]
        if channel.closed:
            return
        self.sending += 1
        row = self._replica.outgoing(place)
        if isinstance(message, m.Push):
            row = self._as_it_travels(place.shard, row)
        channel.send(m.encode(message), row, partial(self._taken, place.shard))

    def can_encode(self, shards: Iterable[int]) -> bool:
        """Has the last gradient of these been taken? One that is sent as it is needs no memory but its own."""
        return self.encoding is None or all(map(self.encoding.free, shards))

    def encode(self, shard: int, iteration: int) -> float:
        """Encode a gradient, if there is a codec. Returns the norm of what is held back."""
        return 0.0 if self.encoding is None else self.encoding.encode(shard, iteration)

    def not_applied(self, shard: int, iteration: int) -> None:
        """A gradient was of no use; what was encoded of it is held back for the next."""
        if self.encoding is not None:
            self.encoding.take_back(shard, iteration)

    def _as_it_travels(self, shard: int, gradient: memoryview) -> memoryview:
        row = gradient if self.encoding is None else self.encoding.send(shard)
        self.traffic.sent += row.nbytes
        self.traffic.saved += gradient.nbytes - row.nbytes
        return row

    def _taken(self, shard: int) -> None:
        self.sending -= 1
        if self.encoding is not None:
            self.encoding.taken(shard)

    # What comes in.

    def _message(self, channel: Channel, incoming: Incoming) -> None:
        header, message = self._decoded  # the one whose payload has just landed, or another
        if header is not incoming.header:
            message = m.decode(incoming.header)
        if incoming.payload is not None:
            self.traffic.received += incoming.payload.nbytes
        self._heard(message, incoming, channel.peer)

    def _landing(self, header: bytes, size: int) -> memoryview:
        """Parameters that come over a socket land where they belong, or aside while they have to wait."""
        message = m.decode(header)
        self._decoded = header, message
        if not isinstance(message, m.Parameters):
            raise FrameError("", f"a {type(message).__name__} came with {size} bytes")
        there = self._replica.landing(message.shard, size)
        return self._replica.aside.landing(message.shard) if self._must_wait(message) else there

    def _closed(self, server: int, _: Channel, error: WireError) -> None:
        self._lost(PeerLost(f"server {server} is gone: {error.why}"))
