"""A process at the other end of a wire, for tests. Told what to be by its arguments; prints its address first."""

from __future__ import annotations

import resource
import sys

import msgspec

from paceline.wire import Channel, Incoming, Limits, Loop, Segment, SocketNetwork, WireError
from tests.wires import network

SIZE = 5_000_000
TIMES = 60


class Peer:
    def __init__(self, role: str, wire: str) -> None:
        self.role = role
        self.loop = Loop()
        self.network = network(wire, Limits(payload=200_000_000))
        self.over = False
        assert isinstance(self.network, SocketNetwork)

    def run(self) -> None:
        listener = self.network.listen(self.role.encode(), "config")
        self.loop.listen(listener, self.connected)
        say(msgspec.json.encode(listener.address).decode())
        self.loop.run(lambda: self.over, self.loop.clock() + 120)
        self.loop.close()

    def connected(self, channel: Channel, hello: bytes) -> None:
        self.loop.add(channel, self.message, self.closed)
        if self.role == "flood":
            payload = memoryview(bytearray(SIZE))
            start = peak()
            for n in range(TIMES):
                channel.send(b"%d" % n, payload)
            say(f"queued {channel.queued_bytes} and grew {peak() - start}")
        elif self.role == "lend":
            segment = Segment(SIZE, "lent")
            segment.view[:] = b"L" * SIZE
            channel.share(segment)
            channel.send(b"lent", segment.view)
        elif self.role == "bulk":
            channel.send(b"bulk", bytes(150_000_000))

    def message(self, channel: Channel, incoming: Incoming) -> None:
        """Send it back."""
        payload = None if incoming.payload is None else bytes(incoming.payload)
        channel.send(incoming.header, payload)
        incoming.release()

    def closed(self, channel: Channel, error: WireError) -> None:
        say(f"closed {error}")
        self.over = True


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def peak() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    Peer(sys.argv[1], sys.argv[2]).run()
