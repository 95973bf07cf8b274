"""The coordinator: the one node that knows who takes part. It drives `Membership` and is never on the data path."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from paceline.nodes import messages as m
from paceline.nodes.errors import NodeError, WrongRequest
from paceline.nodes.job import Job, Network
from paceline.nodes.membership import Close, Command, End, Membership, Send
from paceline.wire import Address, Channel, FrameError, Incoming, Listener, Loop, WireError

BEATS = 5  # heartbeats in the time after which a silent node counts as dead
FAREWELL = 1.0  # how long the last words to the others may take


def no_payload(header: bytes, size: int) -> memoryview:  # noqa: ARG001
    """The sink of channels on which bulk has no business."""
    raise FrameError("", f"{size} bytes of payload came where there are only messages")


class Coordinator:
    def __init__(self, job: Job, network: Network, *, clock: Callable[[], float] = monotonic) -> None:
        self.job = job
        self.error: NodeError | None = None
        self._network = network
        self._clock = clock
        self._loop = Loop(clock=clock)
        self._membership = Membership(job, clock())
        self._listener: Listener | None = None
        self._channels: dict[int, Channel] = {}
        self._links = 0
        self._over = False

    def start(self) -> Address:
        """Listen. Gives the address that the others need."""
        self._listener = self._network.listen(config=self.job.digest())
        self._loop.listen(self._listener, self._connected)
        self._tick()
        return self._listener.address

    def run(self) -> None:
        """Until the run is over. Raises what ended it, if that was not its workers' own end."""
        self._loop.run(lambda: self._over)
        self._farewell()
        if self.error is not None:
            raise self.error

    def stop(self, error: NodeError) -> None:
        """End the run for everyone. May be called from another thread."""
        self._loop.call_soon(lambda: self._carry_out([End(error)]))
        self._loop.wake()

    def close(self) -> None:
        self._loop.close()
        if self._listener is not None:
            self._listener.close()

    def _connected(self, channel: Channel, hello: bytes) -> None:
        self._links += 1
        link = self._links
        channel.sink = no_payload
        self._channels[link] = channel
        self._loop.add(channel, lambda _, incoming: self._message(link, incoming), lambda _, e: self._closed(link, e))
        try:
            introduction = m.decode(hello)
        except WrongRequest as error:
            self._carry_out([Send(link, m.Failed(error.kind, str(error))), Close(link)])
            return
        self._carry_out(self._membership.came(link, introduction, self._clock()))

    def _message(self, link: int, incoming: Incoming) -> None:
        try:
            message = m.decode(incoming.header)
        except WrongRequest as error:
            self._carry_out([Send(link, m.Failed(error.kind, str(error))), Close(link)])
            return
        self._carry_out(self._membership.received(link, message, self._clock()))

    def _closed(self, link: int, error: WireError) -> None:
        self._channels.pop(link, None)
        self._carry_out(self._membership.closed(link, error.why))

    def _tick(self) -> None:
        now = self._clock()
        self._carry_out(self._membership.tick(now))
        if not self._over:
            for link in self._membership.links():
                self._send(link, m.Alive())
            self._loop.call_at(now + self.job.silence / BEATS, self._tick)

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(link, message):
                    self._send(link, message)
                case Close(link):
                    channel = self._channels.pop(link, None)
                    if channel is not None:
                        channel.close()
                case End(error) if not self._over:
                    self._over, self.error = True, error
                    halt = m.Halt() if error is None else m.Halt(error.kind, str(error))
                    for link in list(self._channels):
                        self._send(link, halt)

    def _send(self, link: int, message: m.AnyMessage) -> None:
        channel = self._channels.get(link)
        if channel is not None and not channel.closed:
            channel.send(m.encode(message))

    def _farewell(self) -> None:
        """Let the last messages go out: until the others have hung up, or for a moment."""
        deadline = self._clock() + FAREWELL
        while self._channels and self._clock() < deadline:
            self._loop.run_once(deadline - self._clock())
