"""Strangers and peers that send what nobody should: they are closed and counted, and nobody else is disturbed."""

from __future__ import annotations

import array
import fcntl
import os
import resource
import select
import socket
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire import FrameError, Limits, SegmentError
from paceline.wire.frames import (
    BARE,
    GOODBYE,
    HANDSHAKE,
    INLINE,
    MAX_HANDSHAKE,
    PRELUDE_BYTES,
    REFERENCE,
    REFERENCE_HEAD,
    RELEASE,
    SEGMENT,
    WITHDRAWN,
    prelude,
)
from paceline.wire.greeting import HANDSHAKE_SECONDS
from paceline.wire.handshake import NONCE, Handshake
from paceline.wire.listener import MOST_GREETINGS, PAUSE
from paceline.wire.segment import STEADY
from tests.effort import cases
from tests.wires import PATIENCE, End, Wires, descriptors, wires

SOCKETS = ("tcp", "shared-memory")


class Intruder:
    """A bare socket to the listener, whose other end is in the loop of this very thread."""

    def __init__(self, made: Wires) -> None:
        self.made = made
        address = made.listener.address
        if address.unix is not None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(f"\0{address.unix}")
        else:
            self.sock = socket.create_connection((address.host, address.port))
        self.sock.settimeout(PATIENCE)

    def handshake(self) -> End:
        """Get in like anybody else. Returns the other end."""
        machine = Handshake("connects", token=None, config="config", hello=b"intruder", nonce=os.urandom(NONCE))
        message = machine.start()
        while not machine.done:
            if message is not None:
                self.sock.sendall(prelude(HANDSHAKE, len(message), 0) + message)
            self.made.until(lambda: bool(select.select([self.sock], [], [], 0)[0]))
            data = self.sock.recv(65536)
            message = machine.receive(data[PRELUDE_BYTES:])
        self.made.until(lambda: bool(self.made.accepted))
        return End(self.made.loop, self.made.accepted.pop())

    def send(self, data: bytes, *fds: int) -> None:
        if fds:
            self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        else:
            self.sock.sendall(data)

    def is_out(self) -> bool:
        """The other side has closed; what it said before is of no interest."""
        while select.select([self.sock], [], [], 0)[0]:
            try:
                if not self.sock.recv(65536):
                    return True
            except ConnectionError:
                return True
        return False


@contextmanager
def neighbours(
    wire: str, limits: Limits | None = None, *, clock: Callable[[], float] = time.monotonic, checked: bool = True
) -> Iterator[Wires]:
    """A test among two peers that talk, and still do when it is over."""
    with wires(wire, limits, clock=clock, checked=checked) as made:
        one, other = made.pair()
        segment = made.share(one, 100_000)
        one.send(b"before", segment.view)
        made.until(lambda: len(other.received) == 1 and one.done == [b"before"])
        yield made
        one.send(b"after", segment.view)
        made.until(lambda: len(other.received) == 2 and one.done == [b"before", b"after"])
        assert not one.errors
        assert not other.errors
        assert not made.listener._greetings


STRANGE = {
    "an http request": b"GET / HTTP/1.1\r\nHost: paceline\r\n\r\n",
    "zeros": bytes(100),
    "a message before the handshake": prelude(BARE, 2, 0) + b"hi",
    "a payload before the handshake": prelude(INLINE, 0, 1 << 20) + bytes(1000),
    "a goodbye before the handshake": prelude(GOODBYE, 0, 0),
    "a handshake that is too long": prelude(HANDSHAKE, MAX_HANDSHAKE + 1, 0),
    "a handshake with a payload": prelude(HANDSHAKE, 4, 4) + bytes(8),
    "no handshake": prelude(HANDSHAKE, 3, 0) + b"\x93\x01\x02",
    "a huge header": prelude(HANDSHAKE, (1 << 32) - 1, 0),
}


@pytest.mark.parametrize("wire", SOCKETS)
@pytest.mark.parametrize("what", STRANGE)
def test_strangers_that_talk_nonsense_are_closed_and_counted(wire: str, what: str) -> None:
    with neighbours(wire) as made:
        stranger = Intruder(made)
        stranger.send(STRANGE[what])
        made.until(stranger.is_out)
        assert made.loop.counters["frame"] + made.loop.counters["refused: malformed"] == 1
        stranger.sock.close()


@pytest.mark.parametrize("wire", SOCKETS)
def test_strangers_that_leave_early_are_counted(wire: str) -> None:
    with neighbours(wire) as made:
        for said in (b"", b"x", prelude(HANDSHAKE, 50, 0) + b"begin"):
            stranger = Intruder(made)
            stranger.send(said)
            stranger.sock.close()
        made.until(lambda: made.loop.counters["closed"] == 3)


BAD_FRAMES = {
    "random bytes": (os.urandom(100), FrameError),
    "an unknown kind": (prelude(99, 0, 0), FrameError),
    "a second handshake": (prelude(HANDSHAKE, 0, 0), FrameError),
    "a huge header": (prelude(BARE, (1 << 32) - 1, 0), FrameError),
    "a huge payload": (prelude(INLINE, 0, (1 << 64) - 1), FrameError),
    "a payload just too large": (prelude(INLINE, 0, 1_000_001), FrameError),
    "a payload where none may be": (prelude(BARE, 0, 5), FrameError),
}


@pytest.mark.parametrize("wire", SOCKETS)
@pytest.mark.parametrize("what", BAD_FRAMES)
def test_peers_that_break_the_rules_are_closed_and_told_why(wire: str, what: str) -> None:
    data, error = BAD_FRAMES[what]
    with neighbours(wire, Limits(payload=1_000_000)) as made:
        peer = Intruder(made)
        end = peer.handshake()
        peer.send(prelude(BARE, 4, 0) + b"good" + data)
        made.until(peer.is_out)
        made.until(lambda: bool(end.errors))
        assert end.received == [(b"good", None)]
        assert type(end.errors[0]) is error
        assert made.loop.counters[error.kind] == 1
        peer.sock.close()


def reference(segment: int, offset: int, size: int, header: bytes = b"") -> bytes:
    head = REFERENCE_HEAD.pack(1, segment, offset) + header
    return prelude(REFERENCE, len(head), size) + head


def memory_file(seals: int = STEADY, size: int = 100_000) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


BAD_REFERENCES = {
    "a segment that was never shared": reference(1, 0, 10),
    "just behind its end": reference(0, 1, 100_000),
    "far behind its end": reference(0, 1 << 63, 10),
    "around the end of numbers": reference(0, (1 << 64) - 5, 10),
    "larger than the segment": reference(0, 0, 100_001),
    "cut off": prelude(REFERENCE, 10, 10) + bytes(10),
    "released without being lent": prelude(RELEASE, 0, 1),
    "withdrawn without being shared": prelude(WITHDRAWN, 0, 7),
    "withdrawn and used": prelude(WITHDRAWN, 0, 0) + reference(0, 0, 10),
}


@pytest.mark.parametrize("what", BAD_REFERENCES)
def test_references_must_lie_in_what_was_shared(what: str) -> None:
    with neighbours("shared-memory") as made:
        peer = Intruder(made)
        end = peer.handshake()
        fd = memory_file()
        peer.send(prelude(SEGMENT, 0, 100_000), fd)
        peer.send(reference(0, 99_990, 10, b"good") + BAD_REFERENCES[what])
        made.until(peer.is_out)
        made.until(lambda: bool(end.errors))
        assert end.received == [(b"good", bytes(10))]
        assert type(end.errors[0]) is FrameError
        os.close(fd)
        peer.sock.close()


def offer(peer: Intruder, what: str) -> None:
    """Offer something that is no segment that could be used."""
    good, read_only = memory_file(), os.open("/dev/zero", os.O_RDONLY)
    bare = memory_file(0)
    offers: dict[str, list[tuple[bytes, list[int]]]] = {
        "no descriptor": [(prelude(SEGMENT, 0, 100_000), [])],
        "not memory": [(prelude(SEGMENT, 0, 100_000), [read_only])],
        "a socket": [(prelude(SEGMENT, 0, 100_000), [peer.sock.fileno()])],
        "without seals": [(prelude(SEGMENT, 0, 100_000), [bare])],
        "of another size": [(prelude(SEGMENT, 0, 100_001), [good])],
        "too large together": [(prelude(SEGMENT, 0, 100_000), [good])] * 4,
        "too many": [(prelude(SEGMENT, 0, 1), [memory_file(STEADY, 1)]) for _ in range(6)],
        "many for one": [(prelude(SEGMENT, 0, 100_000), [good] * 20), (prelude(BARE, 0, 0), [good])] * 2,
        "with every message": [(prelude(BARE, 0, 0), [good])] * 5,
    }
    for data, fds in offers.pop(what):
        peer.send(data, *fds)
    for entries in offers.values():
        for _, fds in entries:
            good_ones = {fd for fd in fds if fd not in (good, read_only, bare, peer.sock.fileno())}
            for fd in good_ones:
                os.close(fd)
    for fd in (good, read_only, bare):
        os.close(fd)


OFFERS = [
    "no descriptor",
    "not memory",
    "a socket",
    "without seals",
    "of another size",
    "too large together",
    "too many",
    "many for one",
    "with every message",
]


@pytest.mark.parametrize("what", OFFERS)
def test_only_safe_segments_are_taken(what: str) -> None:
    with neighbours("shared-memory", Limits(segments=5, shared=350_000)) as made:
        peer = Intruder(made)
        end = peer.handshake()
        offer(peer, what)
        made.until(peer.is_out)
        made.until(lambda: bool(end.errors))
        assert type(end.errors[0]) is SegmentError
        assert made.loop.counters["segment"] == 1
        peer.sock.close()


def test_descriptors_before_the_handshake_are_not_collected() -> None:
    with neighbours("shared-memory") as made:
        before = len(descriptors())
        read, write = os.pipe()
        stranger = Intruder(made)
        with pytest.raises(BrokenPipeError):
            for byte in prelude(HANDSHAKE, 100, 0):
                stranger.send(bytes([byte]), read, read)
                made.loop.run_once(0)
        made.until(stranger.is_out)
        stranger.sock.close()
        os.close(read)
        os.close(write)
        assert len(descriptors()) == before


@pytest.mark.parametrize("wire", SOCKETS)
@given(
    data=st.lists(
        st.one_of(
            st.binary(max_size=60), st.builds(prelude, st.integers(0, 9), st.integers(0, 80), st.integers(0, 80))
        ),
        max_size=8,
    ).map(b"".join)
)
@settings(max_examples=cases(60), deadline=None)
def test_any_bytes_at_all_leave_the_loop_and_others_well(wire: str, data: bytes) -> None:
    with neighbours(wire, checked=False) as made:
        peer = Intruder(made)
        end = peer.handshake()
        peer.send(data)
        peer.sock.close()
        made.until(lambda: bool(end.errors))


@pytest.mark.parametrize("wire", SOCKETS)
def test_a_crowd_of_silent_strangers_keeps_nobody_out(wire: str) -> None:
    now = 0.0
    with wires(wire, clock=lambda: now) as made:
        crowd = []
        for n in range(3 * MOST_GREETINGS):
            crowd.append(Intruder(made))
            crowd[-1].send(prelude(HANDSHAKE, 100, 0)[: n % 17])
            made.loop.run_once(0)
            assert len(made.listener._greetings) <= MOST_GREETINGS
        made.until(lambda: made.loop.counters["refused: crowd"] == 2 * MOST_GREETINGS)
        assert [stranger.is_out() for stranger in crowd] == [True] * 2 * MOST_GREETINGS + [False] * MOST_GREETINGS
        one, other = made.pair()
        one.send(b"I got in")
        made.until(lambda: bool(other.received))
        left = len(made.listener._greetings)
        assert left >= MOST_GREETINGS - 1
        now = HANDSHAKE_SECONDS + 0.1
        made.until(lambda: not made.listener._greetings)
        assert made.loop.counters["timeout"] == left
        assert all(stranger.is_out() for stranger in crowd)
        for stranger in crowd:
            stranger.sock.close()


@pytest.mark.parametrize("wire", SOCKETS)
def test_many_bad_connections_leave_nothing_behind(wire: str) -> None:
    with neighbours(wire) as made:

        def attack(times: int) -> None:
            for n in range(times):
                stranger = Intruder(made)
                stranger.send(list(STRANGE.values())[n % len(STRANGE)])
                made.until(stranger.is_out)
                stranger.sock.close()

        attack(20)
        before = len(descriptors())
        tracemalloc.start()
        attack(20)
        start = tracemalloc.get_traced_memory()[0]
        attack(200)
        grown = tracemalloc.get_traced_memory()[0] - start
        tracemalloc.stop()
        assert grown < 200_000
        assert len(descriptors()) == before


def test_no_descriptors_left_is_survived_without_trying_all_the_time() -> None:
    now = 0.0
    with neighbours("tcp", clock=lambda: now) as made:
        address = made.listener.address
        waiting = [socket.socket() for _ in range(3)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        fill = []
        try:
            while True:
                fill.append(os.dup(0))
        except OSError:
            pass
        try:
            for sock in waiting:
                sock.connect((address.host, address.port))
            made.until(lambda: made.loop.counters["no descriptors"] == 1)
            for _ in range(20):
                made.loop.run_once(0)
            assert made.loop.counters["no descriptors"] == 1
            now += PAUSE
            made.until(lambda: made.loop.counters["no descriptors"] == 2)
        finally:
            for fd in fill:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        now += PAUSE
        made.until(lambda: len(made.listener._greetings) == 3)
        for sock in waiting:
            sock.close()
        made.until(lambda: not made.listener._greetings)
