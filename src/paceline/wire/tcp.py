"""The channel over TCP: small messages by the loop, large payloads by threads that the kernel can keep busy.

One blocking call moves a whole payload, while the kernel's buffers hold little enough to stay in the cache. That is
half as fast again as a loop that is told of every quarter of a megabyte, and it leaves the loop free to sum.
"""

from __future__ import annotations

import contextlib
import socket
from functools import partial

from paceline.wire.channel import Limits
from paceline.wire.loop import READ, WRITE
from paceline.wire.movers import Move
from paceline.wire.outbox import Done
from paceline.wire.stream import StreamChannel

LARGE = 256 * 1024  # bytes of a payload that are worth a thread

NOW = socket.MSG_DONTWAIT
ALL = socket.MSG_WAITALL


class TCPChannel(StreamChannel):
    """The socket blocks; the loop asks it not to each time."""

    _turn = 64 * 1024

    def __init__(self, sock: socket.socket, peer: str, limits: Limits) -> None:
        super().__init__(sock, peer, limits)
        sock.setblocking(True)
        self._inward: Move | None = None
        self._outward: Move | None = None

    # By the loop.

    def _hand_over(self, frame: bytes, payload: memoryview | None) -> int:
        return self._sock.send(frame, NOW) if payload is None else self._sock.sendmsg((frame, payload), (), NOW)

    def _hand_over_batch(self, buffers: list[memoryview], descriptor: int | None) -> int:
        return self._sock.sendmsg(buffers, (), NOW)

    def _receive(self, room: memoryview) -> int:
        return self._sock.recv_into(room, 0, NOW)

    def _read(self) -> None:
        if self._inward is None:
            super()._read()
            self._watch()

    def _flush(self) -> None:
        if self._outward is None:
            super()._flush()

    def _wanted(self) -> int:
        wanted = super()._wanted()
        if self._inward is not None:
            wanted &= ~READ
        return wanted if self._outward is None else wanted & ~WRITE

    # By threads.

    def _watch(self) -> None:
        self._move()
        super()._watch()

    def _move(self) -> None:
        """Hand large payloads to threads, if they are next."""
        loop, rest, first = self._loop, self._reader.rest, self._outbox.first
        if loop is None or self._fd < 0:
            return
        if self._inward is None and self._taking and rest is not None and rest.nbytes >= LARGE:
            self._inward = Move(rest, lambda memory: self._sock.recv_into(memory, 0, ALL))
            loop.aside(self._inward, partial(self._moved_in, self._inward))
        if self._outward is None and first is not None and first.nbytes >= LARGE:
            self._outward = Move(first, self._sock.send)
            loop.aside(self._outward, partial(self._moved_out, self._outward))

    def _moved_in(self, move: Move) -> None:
        if self._inward is not move:
            return  # the channel has ended
        self._inward = None
        self._reader.landed(move.moved)
        if move.error is not None:
            self._lost(move.error)
        elif self._reader.rest:
            self._gone("it left within a frame")
        elif self._taking:
            self._take()
        if self._state != "closed":
            self._watch()

    def _moved_out(self, move: Move) -> None:
        if self._outward is not move:
            return
        self._outward = None
        self._tell(self._outbox.sent(move.moved))
        if move.error is not None:
            self._broken(move.error)
        self._flush()
        if self._state != "closed":
            self._watch()

    def _free(self) -> list[Done]:
        """Nobody reads from or writes to a payload's memory after that."""
        moves = [move for move in (self._inward, self._outward) if move is not None]
        self._inward = self._outward = None
        if moves:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        for move in moves:
            move.over.wait()
        return super()._free()
