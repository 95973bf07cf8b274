"""The channel over a stream socket. TCP, TLS and shared memory change how bytes are handed over.

The way of a small message: one `recv` brings prelude, header and payload; one `send` takes them. Nothing is registered
or changed with the selector unless the kernel's buffer is full. A large payload is written from where it lies and
received where the sink says, in pieces, and a turn of the loop ends after TURN bytes so that others get theirs.
"""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

from paceline.wire.channel import Channel, Incoming, Limits, Wire, left
from paceline.wire.errors import ChannelClosed, SlowReader, WireError
from paceline.wire.frames import (
    BARE,
    GOODBYE,
    HANDSHAKE,
    INLINE,
    MAX_GOODBYE,
    MAX_HANDSHAKE,
    SMALL,
    Reader,
    Table,
    as_bytes,
    prelude,
)
from paceline.wire.loop import READ, WRITE
from paceline.wire.outbox import Done, Outbox

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

JOINED = 16 * 1024  # payloads up to this size are cheaper to copy behind their header than to gather
TURN = 1024 * 1024  # bytes that one channel may take in before others have their turn


class StreamChannel(Channel):
    """Takes a connected socket over."""

    wire: Wire = "tcp"
    _turn = TURN

    def __init__(self, sock: socket.socket, peer: str, limits: Limits) -> None:
        super().__init__(peer, limits)
        sock.setblocking(False)
        self._sock = sock
        self._fd = sock.fileno()
        self._reader = Reader({HANDSHAKE: (MAX_HANDSHAKE, 0)})
        self._reader.sink = self._place
        self._outbox = Outbox()
        self._watched = 0
        self._read_needs_write = False  # these two happen to TLS only
        self._write_needs_read = False
        self._ended = False  # nobody reads what we write any more
        self._along = b""  # frames that wait for the next one to go along

    @property
    def queued_bytes(self) -> int:
        return self._outbox.queued

    def send(self, header: bytes, payload: Buffer | None = None, done: Done | None = None) -> None:
        if payload is None:
            self._check(header, 0)
            self._write(prelude(BARE, len(header), 0) + header, None, done)
        else:
            self._send_inline(header, as_bytes(payload), done)

    def _send_inline(self, header: bytes, data: memoryview, done: Done | None) -> None:
        size = data.nbytes
        self._check(header, size)
        if size <= JOINED:
            self._write(b"".join((prelude(INLINE, len(header), size), header, data)), None, done)
        else:
            self._write(prelude(INLINE, len(header), size) + header, data, done)

    def open(self) -> None:
        super().open()
        self._reader.table = self._table()

    def _table(self) -> Table:
        """What may come once the handshake is done."""
        limits = self.limits
        return {BARE: (limits.header, 0), INLINE: (limits.header, limits.payload), GOODBYE: (MAX_GOODBYE, 0)}

    def _place(self, header: bytes, size: int) -> memoryview | None:
        return self.sink(header, size)

    # Out.

    def _say(self, kind: int, header: bytes) -> None:
        self._write(prelude(kind, len(header), 0) + header, None, None)

    def _write(self, frame: bytes, payload: memoryview | None, done: Done | None) -> None:
        """Hand over what the kernel takes, and queue the rest."""
        if self._along:
            frame, self._along = self._along + frame, b""
        sent = 0
        whole = len(frame) if payload is None else len(frame) + payload.nbytes
        if not self._outbox.queued and not self._ended:
            try:
                sent = self._hand_over(frame, payload)
            except BlockingIOError:
                pass
            except OSError as error:
                self._broken(error)
        if sent < whole and not self._ended:
            self._queue(frame, payload, done, sent)
        elif done is not None:
            self._tell([done])

    def _queue(self, frame: bytes, payload: memoryview | None, done: Done | None, sent: int) -> None:
        rest = len(frame) - sent
        if rest > 0:
            self._outbox.put(memoryview(frame)[sent:], rest, done if payload is None else None)
        if payload is not None:
            self._outbox.put(payload[max(0, -rest) :], payload.nbytes if payload.nbytes <= SMALL else 0, done)
        if self._outbox.held > self.limits.queued and self._state == "open":
            self.fail(SlowReader(self.peer, f"{self._outbox.held} bytes wait for it; at most {self.limits.queued} may"))
        else:
            self._watch()

    def _hand_over(self, frame: bytes, payload: memoryview | None) -> int:
        return self._sock.send(frame) if payload is None else self._sock.sendmsg((frame, payload))

    def _hand_over_batch(self, buffers: list[memoryview], descriptor: int | None) -> int:
        return self._sock.sendmsg(buffers)

    def _flush(self) -> None:
        outbox = self._outbox
        try:
            if outbox:
                self._tell(outbox.sent(self._hand_over_batch(*outbox.batch())))
        except BlockingIOError:
            self._watch()
            return
        except OSError as error:
            self._broken(error)
        if not outbox:
            self._watch()
            if self._state == "closing":
                self._hang_up()

    def _broken(self, error: OSError) -> None:
        """Nobody reads us any more. What the peer said before that is still to be read, and may tell why."""
        self._ended = True
        self._tell(self._outbox.drop())
        if not isinstance(error, ConnectionError):
            self._lost(error)
        elif self._paused:
            self.resume()

    def _hang_up(self) -> None:
        if not self._outbox:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_WR)

    # In.

    def _handle(self, events: int) -> None:
        if events != READ and self._outbox:
            self._flush()
        if events != WRITE or self._read_needs_write:
            self._read()

    def _read(self) -> None:
        if not self._taking:
            if self._state == "closing":
                self._discard()
            return
        reader, turn = self._reader, self._turn
        while True:
            try:
                count = reader.fill(self._receive)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(error)
                return
            if count == 0:
                self._gone("it closed the connection without a word" if reader.empty else "it left within a frame")
                return
            self._take()
            turn -= count
            if not self._taking or turn <= 0 or (reader.rest is None and not self._pending()):
                return

    def _receive(self, room: memoryview) -> int:
        return self._sock.recv_into(room)

    def _pending(self) -> int:
        """Bytes that are here already, and that no selector sees."""
        return 0

    def _take(self) -> None:
        """Hand on the frames that are here."""
        reader = self._reader
        try:
            while self._taking:
                frame = reader.next()
                if frame is None:
                    if reader.blocked:
                        self.pause()
                    return
                kind, header, size, payload = frame
                if kind <= INLINE:
                    self._on_message(self, Incoming(header, payload))
                else:
                    self._control(kind, header, size)
                if not reader.stop:
                    return
        except WireError as error:
            self.fail(error)
        except BaseException:  # a mistake of the node's own; if it goes on, so does the channel
            if self._loop is not None:
                self._loop.call_soon(self._go_on)
            raise

    def _go_on(self) -> None:
        self._changed()
        self._take()

    def _control(self, kind: int, header: bytes, size: int) -> None:
        """Handle a frame that is no message; the table has let none through but these."""
        if kind == HANDSHAKE:
            self._on_message(self, Incoming(header))
        elif kind == GOODBYE:
            raise left(self.peer, header)

    def _discard(self) -> None:
        """Nobody wants it any more, but it must not keep our goodbye from getting through."""
        try:
            if not self._receive(memoryview(bytearray(SMALL))):
                self._end()
        except BlockingIOError:
            pass
        except OSError:
            self._end()

    def _lost(self, error: OSError) -> None:
        self._gone(f"the connection broke: {error.strerror or error}")

    def _gone(self, why: str) -> None:
        hint = " before the handshake was done; do both sides use TLS, or neither?" if self._state == "greeting" else ""
        self.fail(ChannelClosed(self.peer, why + hint))

    # The selector.

    def _wanted(self) -> int:
        wanted = 0 if self._paused and self._state != "closing" else READ
        if (self._outbox and not self._write_needs_read) or self._read_needs_write:
            wanted |= WRITE
        return wanted

    def _watch(self) -> None:
        if self._loop is None or self._fd < 0:
            return
        wanted = self._wanted()
        if wanted == self._watched:
            return
        if not self._watched:
            self._loop.watch(self._fd, wanted, self._handle)
        elif not wanted:
            self._loop.unwatch(self._fd)
        else:
            self._loop.rewatch(self._fd, wanted)
        self._watched = wanted

    def _unwatch(self) -> None:
        if self._watched and self._loop is not None:
            self._loop.unwatch(self._fd)
        self._watched = 0

    def _free(self) -> list[Done]:
        self._fd = -1
        self._sock.close()
        self._reader.close()
        return self._outbox.drop()
