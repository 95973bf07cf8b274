"""What has been deciphered and not been taken yet: no selector tells of it.

A record of ours ends where a frame does, so this peer is the library alone, and cuts its records elsewhere.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from paceline.wire import Incoming, Limits, Loop
from paceline.wire.frames import BARE, INLINE, prelude
from paceline.wire.tls import TLSChannel, accepted, connected
from tests.wires import End, tls, turn_until

PAYLOAD = bytes(range(256)) * 16
HEAD = prelude(INLINE, 5, len(PAYLOAD)) + b"first"
NEXT = prelude(BARE, 6, 0) + b"second"
FIRST, SECOND = (b"first", PAYLOAD), (b"second", None)


class ShortTurns(TLSChannel):
    """Others have their turn after whatever has come at once."""

    _turn = 1


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as loop:
        yield loop


def pair(loop: Loop, kind: type[TLSChannel]) -> tuple[ssl.SSLSocket, End]:
    """A peer that writes records as it likes, and the end of an open channel."""
    ours, theirs = socket.socketpair()
    channel = kind(accepted(ours, tls().context("accepts")), "peer", Limits())
    channel.open()
    end = End(loop, channel)
    peer = connected(theirs, tls().context("connects"), "127.0.0.1")

    def shaken() -> bool:
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    turn_until(loop, shaken)
    return peer, end


def in_two_records(peer: ssl.SSLSocket) -> None:
    """The second one has the end of one message's payload, and another message."""
    peer.sendall(HEAD + PAYLOAD[:-100])
    peer.sendall(PAYLOAD[-100:] + NEXT)


@pytest.mark.parametrize("kind", [TLSChannel, ShortTurns])
def test_a_record_has_the_end_of_one_message_and_another_one(loop: Loop, kind: type[TLSChannel]) -> None:
    peer, end = pair(loop, kind)
    with peer:
        in_two_records(peer)
        turn_until(loop, lambda: len(end.received) == 2)
    assert end.received == [FIRST, SECOND]


def test_what_came_before_a_pause_is_there_after_it(loop: Loop) -> None:
    peer, end = pair(loop, TLSChannel)

    def pause(incoming: Incoming) -> None:
        incoming.release()
        end.channel.pause()

    end.on_message = pause
    with peer:
        in_two_records(peer)
        turn_until(loop, lambda: len(end.received) == 1)
        loop.run_once(0)
        assert end.received == [FIRST]
        end.channel.resume()
        turn_until(loop, lambda: len(end.received) == 2)
    assert end.received == [FIRST, SECOND]
