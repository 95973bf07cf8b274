"""Pairs of open channels for the tests of the wires: every kind, both ends in one loop and one thread."""

from __future__ import annotations

import contextlib
import gc
import os
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
    Loop,
    MemoryNetwork,
    Segment,
    SocketNetwork,
    WireError,
)

Network = MemoryNetwork | SocketNetwork

WIRES = ("memory", "shared-memory", "tcp", "tls")
PATIENCE = 30.0  # seconds after which a test gives up
CERTIFICATES = Path(__file__).parent / "wire" / "certificates"


def tls(who: str = "node", *, server_name: str | None = None) -> TLS:
    certificate, key = CERTIFICATES / f"{who}.pem", CERTIFICATES / f"{who}.key.pem"
    return TLS(str(certificate), str(key), str(CERTIFICATES / "authority.pem"), server_name)


def network(wire: str, limits: Limits | None = None, token: str | None = None) -> Network:
    if wire == "memory":
        return MemoryNetwork(limits=limits, token=token)
    if wire == "shared-memory":
        return SocketNetwork(wire="shared-memory", limits=limits, token=token)
    return SocketNetwork(wire="tcp", limits=limits, token=token, tls=tls() if wire == "tls" else None)


def descriptors() -> list[str]:
    """What this process has open, but for shared memory, which views of it keep open."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(link for link in links if "/memfd:" not in link)


class End:
    """One end of a channel, and all that happened there. Payloads are copied and released unless `keep` is set."""

    def __init__(self, loop: Loop, channel: Channel) -> None:
        self.channel = channel
        self.received: list[tuple[bytes, bytes | None]] = []
        self.errors: list[WireError] = []
        self.done: list[bytes] = []
        self.kept: list[Incoming] = []
        self.keep = False
        self.on_message: Callable[[Incoming], None] | None = None
        loop.add(channel, self._message, self._closed)

    def send(self, header: bytes, payload: bytes | bytearray | memoryview | None = None) -> None:
        self.channel.send(header, payload, lambda: self.done.append(header))

    def _message(self, channel: Channel, incoming: Incoming) -> None:
        assert channel is self.channel
        assert not self.errors
        self.received.append((incoming.header, None if incoming.payload is None else bytes(incoming.payload)))
        if self.on_message is not None:
            self.on_message(incoming)
        elif self.keep:
            self.kept.append(incoming)
        else:
            incoming.release()

    def _closed(self, channel: Channel, error: WireError) -> None:
        assert channel.closed
        self.errors.append(error)


class Wires:
    """A loop with a listener, and as many pairs as a test wants."""

    def __init__(self, wire: str, limits: Limits | None, clock: Callable[[], float], token: str | None) -> None:
        self.wire = wire
        self.loop = Loop(clock=clock)
        self.network = network(wire, limits, token)
        self.accepted: list[Channel] = []
        self.segments: list[Segment] = []
        self.listener = self.network.listen(b"listener", "config")
        self.loop.listen(self.listener, lambda channel, hello: self.accepted.append(channel))

    def pair(self) -> tuple[End, End]:
        """The end that connected, and the end that accepted."""
        channel = connect(self.loop, self.network, self.listener.address)
        self.until(lambda: bool(self.accepted))
        return End(self.loop, channel), End(self.loop, self.accepted.pop())

    def until(self, condition: Callable[[], bool]) -> None:
        turn_until(self.loop, condition)

    def share(self, end: End, size: int) -> Segment:
        segment = Segment(size, "test")
        self.segments.append(segment)
        end.channel.share(segment)
        return segment


def turn_until(loop: Loop, condition: Callable[[], bool]) -> None:
    """Like Loop.run, by the real clock whatever the loop's is."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        loop.run_once(0.2)


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
    turn_until(loop, lambda: bool(result))
    thread.join(PATIENCE)
    if isinstance(result[0], BaseException):
        raise result[0]
    return result[0]


@contextmanager
def wires(
    wire: str,
    limits: Limits | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    token: str | None = None,
    checked: bool = True,
) -> Iterator[Wires]:
    """If `checked`, which takes a while, no descriptor must be left open at the end."""
    if checked:
        gc.collect()
    before = descriptors()
    made = Wires(wire, limits, clock, token)
    with made.loop:
        yield made
    for segment in made.segments:
        segment.close()
    del made
    if not checked:
        return
    gc.collect()
    assert [link for link in descriptors() if link not in before] == []
