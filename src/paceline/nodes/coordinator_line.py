"""The line of any other node to the coordinator: heartbeats in both directions, and the word that the run is over."""

from __future__ import annotations

from collections.abc import Callable

from paceline.nodes import messages as m
from paceline.nodes.coordinator import BEATS, no_payload
from paceline.nodes.errors import NodeError, PeerLost, error_of
from paceline.nodes.job import Job, Network
from paceline.wire import Address, Channel, Incoming, Loop, WireError


class CoordinatorLine:
    """Lives in the loop of its node. `on_message` is called with what is neither a heartbeat nor the end.

    `on_over` is called once: with None when the coordinator says that the run has ended well, else with what ended it,
    which may be that the coordinator is gone.
    """

    def __init__(
        self,
        job: Job,
        loop: Loop,
        on_message: Callable[[m.AnyMessage], None],
        on_over: Callable[[NodeError | None], None],
    ) -> None:
        self.over = False
        self._job = job
        self._loop = loop
        self._on_message = on_message
        self._on_over = on_over
        self._channel: Channel | None = None
        self._heard = 0.0

    def connect(self, network: Network, coordinator: Address, hello: m.AnyMessage, first: m.AnyMessage) -> None:
        """Introduce this node, say the first word, and keep the line open."""
        deadline = self._loop.clock() + self._job.start_within
        channel = network.connect(coordinator, m.encode(hello), self._job.digest(), deadline)
        channel.peer = "the coordinator"
        channel.sink = no_payload
        self._channel = channel
        self._heard = self._loop.clock()
        self._loop.add(channel, self._message, self._closed)
        self.send(first)
        self._beat()

    def send(self, message: m.AnyMessage) -> None:
        """Unless the line is closed, which the node hears of by itself."""
        if self._channel is not None and not self._channel.closed:
            self._channel.send(m.encode(message))

    def hang_up(self) -> None:
        """Of its own accord: `on_over` is not called."""
        self.over = True
        if self._channel is not None:
            self._channel.close()

    def end(self, error: NodeError | None) -> None:
        """The run is over for this node."""
        if not self.over:
            self.over = True
            self._on_over(error)

    def _beat(self) -> None:
        now = self._loop.clock()
        if now - self._heard > self._job.silence:
            self.end(PeerLost(f"the coordinator is gone: silent for {self._job.silence:g} s"))
        if not self.over:
            self.send(m.Alive())
            self._loop.call_at(now + self._job.silence / BEATS, self._beat)

    def _message(self, _: Channel, incoming: Incoming) -> None:
        self._heard = self._loop.clock()
        message = m.decode(incoming.header)
        match message:
            case m.Alive():
                pass
            case m.Halt(kind, words) | m.Failed(kind, words):
                self.end(error_of(kind, words) if kind is not None else None)
            case _:
                self._on_message(message)

    def _closed(self, _: Channel, error: WireError) -> None:
        self.end(PeerLost(f"the coordinator is gone: {error.why}"))
