"""Large payloads over TCP, which threads move."""

from __future__ import annotations

import socket
import threading
from random import Random

import pytest

from paceline.wire import ChannelClosed, FrameError
from paceline.wire.tcp import TCPChannel
from tests.wires import wires

SIZE = 8_000_000


def movers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "paceline mover"]


def test_nothing_paces_loopback_at_either_end() -> None:
    with wires("tcp") as made:
        for end in made.pair():
            channel = end.channel
            assert isinstance(channel, TCPChannel)
            control = channel._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert control.rstrip(b"\0") == b"reno"


def test_memory_is_left_alone_once_the_channel_has_ended() -> None:
    """Also while the peer goes on sending."""
    with wires("tcp") as made:
        one, other = made.pair()
        landing = memoryview(bytearray(SIZE))
        other.channel.sink = lambda header, size: landing
        one.send(b"", b"x" * SIZE)
        channel = other.channel
        assert isinstance(channel, TCPChannel)
        made.until(lambda: channel._inward is not None)
        move = channel._inward
        channel.abort()
        assert move is not None
        assert move.over.is_set()
        landing[:] = bytes(SIZE)
        made.until(lambda: bool(one.errors))
        assert not any(landing)
        assert one.done == [b""]
        assert not other.received


def test_done_is_said_when_nobody_reads_the_memory_any_more() -> None:
    with wires("tcp") as made:
        one, other = made.pair()
        other.channel.pause()
        payload = bytearray(b"x" * 100_000_000)
        one.send(b"", payload)
        one.channel.abort()
        made.until(lambda: one.done == [b""])
        payload[:] = bytes(len(payload))
        landing = memoryview(bytearray(len(payload)))
        other.channel.sink = lambda header, size: landing
        other.channel.resume()
        made.until(lambda: bool(other.errors))
        assert bytes(landing).rstrip(b"\0").strip(b"x") == b""
        assert isinstance(other.errors[0], ChannelClosed)


def test_small_messages_go_the_other_way_meanwhile() -> None:
    with wires("tcp") as made:
        one, other = made.pair()
        other.channel.sink = lambda header, size: None  # no room
        one.send(b"stuck", bytes(50_000_000))
        for n in range(100):
            other.send(b"%d" % n)
        made.until(lambda: len(one.received) == 100)
        assert not other.received
        other.channel.sink = lambda header, size: memoryview(bytearray(size))
        other.channel.resume()
        made.until(lambda: bool(other.received))


def test_what_follows_a_large_payload_comes_after_it() -> None:
    random = Random(5)
    sent = [(b"%d" % n, random.randbytes(size)) for n, size in enumerate([SIZE, 10, 70_000, SIZE, SIZE, 1, 500_000])]
    with wires("tcp") as made:
        one, other = made.pair()
        for header, payload in sent:
            one.send(header, payload)
            made.loop.run_once(0)
        made.until(lambda: len(other.received) == len(sent))
        assert other.received == sent
        made.until(lambda: len(one.done) == len(sent))


def test_a_channel_that_is_closed_still_sends_what_it_has_begun() -> None:
    payload = Random(6).randbytes(SIZE)
    with wires("tcp") as made:
        one, other = made.pair()
        one.send(b"last", payload)
        one.channel.close("enough")
        made.until(lambda: bool(other.errors))
        assert other.received == [(b"last", payload)]
        assert "enough" in str(other.errors[0])


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_an_end_in_the_middle_is_noticed(who: str) -> None:
    with wires("tcp") as made:
        one, other = made.pair()
        landing = memoryview(bytearray(100_000_000))
        other.channel.sink = lambda header, size: landing
        one.send(b"", bytes(100_000_000))
        made.loop.run_once(0)
        ends = {"sender": one, "receiver": other}
        left = ends.pop(who)
        left.channel.abort()
        (there,) = ends.values()
        made.until(lambda: bool(there.errors))
        assert isinstance(there.errors[0], ChannelClosed)
        assert not other.received


def test_no_thread_is_left() -> None:
    before = movers()
    with wires("tcp") as made:
        one, other = made.pair()
        one.send(b"", bytes(SIZE))
        other.send(b"", bytes(SIZE))
        made.until(lambda: bool(one.received) and bool(other.received))
        assert len(movers()) > len(before)
        one.send(b"and one more", bytes(SIZE))
    assert movers() == before


def test_an_error_names_whom_it_is_about() -> None:
    def refuse(header: bytes, size: int) -> memoryview:
        raise FrameError("", f"{size} bytes are not wanted")

    with wires("tcp") as made:
        one, other = made.pair()
        other.channel.sink = refuse
        one.send(b"", bytes(100))
        made.until(lambda: bool(other.errors))
        assert other.errors[0].peer == other.channel.peer != ""
