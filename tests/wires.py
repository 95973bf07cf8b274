"""Pairs of open channels for the tests of the wires: every kind, both ends in one loop and one thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.wire import (
    TLS,
    Address,
    Channel,
    Incoming,
    Limits,
    Listener,
    Loop,
    MemoryNetwork,
    SocketNetwork,
    WireError,
)

Network = MemoryNetwork | SocketNetwork

WIRES = ("memory", "shared-memory", "tcp", "tls")
PATIENCE = 20.0  # seconds after which a test gives up
CERTIFICATES = Path(__file__).parent / "wire" / "certificates"


def tls(who: str = "node", **options: str) -> TLS:
    return TLS(
        str(CERTIFICATES / f"{who}.pem"),
        str(CERTIFICATES / f"{who}.key.pem"),
        str(CERTIFICATES / "authority.pem"),
        **options,
    )


def network(wire: str, limits: Limits | None = None, token: str | None = None) -> Network:
    if wire == "memory":
        return MemoryNetwork(limits=limits, token=token)
    if wire == "shared-memory":
        return SocketNetwork(wire="shared-memory", limits=limits, token=token)
    return SocketNetwork(wire="tcp", limits=limits, token=token, tls=tls() if wire == "tls" else None)


class End:
    """One end of a channel, and all that happened there."""

    def __init__(self, loop: Loop, channel: Channel) -> None:
        self.loop = loop
        self.channel = channel
        self.received: list[tuple[bytes, bytes | None]] = []
        self.errors: list[WireError] = []
        self.done = 0
        self.on_message: Callable[[Incoming], None] | None = None
        loop.add(channel, self._message, self._closed)

    def send(self, header: bytes, payload: bytes | memoryview | None = None) -> None:
        self.channel.send(header, payload, self._done)

    def _done(self) -> None:
        self.done += 1

    def _message(self, channel: Channel, incoming: Incoming) -> None:
        assert channel is self.channel
        if self.on_message is not None:
            self.on_message(incoming)
            return
        self.received.append((incoming.header, None if incoming.payload is None else bytes(incoming.payload)))
        incoming.release()

    def _closed(self, channel: Channel, error: WireError) -> None:
        self.errors.append(error)


class Wires:
    """A loop with a listener, and as many pairs as a test wants."""

    def __init__(self, wire: str, limits: Limits | None = None) -> None:
        self.wire = wire
        self.loop = Loop()
        self.network = network(wire, limits)
        self.accepted: list[Channel] = []
        self.listener = self.network.listen(b"listener", "config")
        self.loop.listen(self.listener, lambda channel, hello: self.accepted.append(channel))

    def pair(self) -> tuple[End, End]:
        """The end that connected, and the end that accepted."""
        channel = connect(self.loop, self.network, self.listener.address)
        self.until(lambda: bool(self.accepted))
        return End(self.loop, channel), End(self.loop, self.accepted.pop())

    def until(self, condition: Callable[[], bool]) -> None:
        self.loop.run(condition, self.loop.clock() + PATIENCE)


def connect(
    loop: Loop, network: Network, address: Address, hello: bytes = b"connector", config: str = "config"
) -> Channel:
    """Connect in a thread while the loop that accepts goes on in this one."""
    result: list[Channel | BaseException] = []

    def run() -> None:
        try:
            result.append(network.connect(address, hello, config, time.monotonic() + PATIENCE))
        except BaseException as error:
            result.append(error)
        loop.wake()

    thread = threading.Thread(target=run)
    thread.start()
    loop.run(lambda: bool(result), loop.clock() + PATIENCE)
    thread.join(PATIENCE)
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


@contextmanager
def wires(wire: str, limits: Limits | None = None) -> Iterator[Wires]:
    made = Wires(wire, limits)
    with made.loop:
        yield made


__all__ = ["PATIENCE", "WIRES", "End", "Listener", "Wires", "connect", "network", "tls", "wires"]
