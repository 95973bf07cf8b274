"""The channel between two processes of one host: a Unix socket, and large payloads by reference into shared memory.

`share` hands a segment's descriptor over once. From then on a large payload that lies in it is sent as its place, and
the receiver reads it there; `release` goes back as a frame of its own. What is not in a segment, or small, goes through
the socket. A peer can name only segments that it handed over itself, and only places within them.
"""

from __future__ import annotations

import array
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline.wire.channel import Incoming, Limits, Wire
from paceline.wire.errors import FrameError, SegmentError
from paceline.wire.frames import (
    ANY,
    REFERENCE,
    REFERENCE_HEAD,
    RELEASE,
    SEGMENT,
    SMALL,
    WITHDRAWN,
    Table,
    as_bytes,
    prelude,
)
from paceline.wire.outbox import Done
from paceline.wire.segment import Segment
from paceline.wire.stream import StreamChannel

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

DESCRIPTOR = array.array("i").itemsize
ANCILLARY = socket.CMSG_SPACE(2 * DESCRIPTOR)  # for one more than may come at once, to see that it did
SOCKET_BUFFER = 4 * 1024 * 1024


class Shared(NamedTuple):
    """A segment that the peer has from us. The view keeps its addresses from being used for something else."""

    number: int
    start: int
    stop: int
    view: memoryview


class SharedMemoryChannel(StreamChannel):
    """Over a connected Unix stream socket."""

    wire: Wire = "shared-memory"

    def __init__(self, sock: socket.socket, peer: str, limits: Limits) -> None:
        super().__init__(sock, peer, limits)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER)
        self._mine: dict[Segment, Shared] = {}
        self._shares = 0  # how many segments were shared so far
        self._theirs: dict[int, Segment] = {}
        self._offers = 0
        self._their_bytes = 0
        self._descriptors: list[int] = []  # received, and not claimed by a frame yet
        self._lent: dict[int, Done | None] = {}
        self._lending = 0  # the number of the last reference

    def share(self, segment: Segment) -> None:
        self._check(b"", 0)
        if segment in self._mine:
            return
        if segment.fd < 0 or len(self._mine) >= self.limits.segments:
            raise SegmentError(
                self.peer,
                f"segment {segment.name!r} cannot be shared beside {len(self._mine)} others:"
                f" it must be our own, not closed, and one of {self.limits.segments} at most",
            )
        view = segment.view[:]
        start = _address(view)
        self._mine[segment] = Shared(self._shares, start, start + segment.size, view)
        self._shares += 1
        self._outbox.put(memoryview(prelude(SEGMENT, 0, segment.size)), 0, None, os.dup(segment.fd))
        self._flush()
        self._watch()

    def unshare(self, segment: Segment) -> None:
        shared = self._mine.pop(segment, None)
        if shared is not None and self._state == "open":
            self._write(prelude(WITHDRAWN, 0, shared.number), None, None)

    def send(self, header: bytes, payload: Buffer | None = None, done: Done | None = None) -> None:
        if payload is None:
            super().send(header, None, done)
            return
        data = as_bytes(payload)
        place = self._place_of(payload, data) if data.nbytes > SMALL else None
        if place is None:
            self._send_inline(header, data, done)
        else:
            self._lend(header, data.nbytes, *place, done)

    def _place_of(self, payload: Buffer, data: memoryview) -> tuple[int, int] | None:
        """In which of our segments that the peer has, and where in it; None if it lies elsewhere."""
        for segment, shared in self._mine.items():
            offset = segment.start_of(payload)
            if offset is not None:
                return shared.number, offset
        start = _address(data)
        stop = start + data.nbytes
        for shared in self._mine.values():
            if shared.start <= start and stop <= shared.stop:
                return shared.number, start - shared.start
        return None

    def _lend(self, header: bytes, size: int, segment: int, offset: int, done: Done | None) -> None:
        self._check(header, size)
        self._lending += 1
        self._lent[self._lending] = done
        head = REFERENCE_HEAD.pack(self._lending, segment, offset)
        self._write(prelude(REFERENCE, len(head) + len(header), size) + head + header, None, None)

    def _table(self) -> Table:
        limits = self.limits
        return super()._table() | {
            REFERENCE: (REFERENCE_HEAD.size + limits.header, limits.payload),
            RELEASE: (0, ANY),
            SEGMENT: (0, limits.shared),
            WITHDRAWN: (0, ANY),
        }

    # Descriptors.

    def _hand_over_batch(self, buffers: list[memoryview], descriptor: int | None) -> int:
        if descriptor is None:
            return self._sock.sendmsg(buffers)
        return socket.send_fds(self._sock, buffers, [descriptor])

    def _receive(self, room: memoryview) -> int:
        if self._reader.rest is not None:
            return self._sock.recv_into(room)
        count, ancillary, _, _ = self._sock.recvmsg_into((room,), ANCILLARY)
        if ancillary:
            self._received(ancillary)
        return count

    def _received(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        """A descriptor comes with the first byte of its frame, so one at most can be waiting when another comes."""
        surplus = len(self._descriptors) > 1
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors += array.array("i", data[: len(data) - len(data) % DESCRIPTOR])
        if surplus:
            self.fail(SegmentError(self.peer, "more descriptors came than segments were announced"))

    # References.

    def _control(self, kind: int, header: bytes, size: int) -> None:
        if kind == REFERENCE:
            self._referenced(header, size)
        elif kind == RELEASE:
            self._released(size)
        elif kind == SEGMENT:
            self._offered(size)
        elif kind == WITHDRAWN:
            self._withdrawn(size)
        else:
            super()._control(kind, header, size)

    def _referenced(self, header: bytes, size: int) -> None:
        if len(header) < REFERENCE_HEAD.size:
            raise FrameError(self.peer, f"a reference has {len(header)} bytes; {REFERENCE_HEAD.size} at least")
        number, segment, offset = REFERENCE_HEAD.unpack_from(header)
        there = self._theirs.get(segment)
        if there is None:
            raise FrameError(self.peer, f"a payload in segment {segment}; it shares {sorted(self._theirs)}")
        if offset + size > there.size:
            raise FrameError(self.peer, f"a payload of {size} bytes at {offset}, in a segment of {there.size} bytes")
        payload = there.part(offset, offset + size)
        self._on_message(self, Incoming(header[REFERENCE_HEAD.size :], payload, partial(self._release, number)))

    def _release(self, number: int) -> None:
        """Tell the peer together with what is sent next: most often that is the answer to what was released."""
        if self._state != "open":
            return
        if not self._along and self._loop is not None:
            self._loop.call_soon(self._send_releases)
        self._along += prelude(RELEASE, 0, number)
        if self._loop is None:
            self._send_releases()

    def _send_releases(self) -> None:
        """At the end of the turn, if nothing was sent in it."""
        if self._along and self._state == "open":
            self._write(b"", None, None)

    def _released(self, number: int) -> None:
        if number not in self._lent:
            raise FrameError(self.peer, f"reference {number} was released, which is not out")
        done = self._lent.pop(number)
        if done is not None:
            done()

    def _offered(self, size: int) -> None:
        if not self._descriptors:
            raise SegmentError(self.peer, "a segment was announced without its descriptor")
        if len(self._theirs) >= self.limits.segments or self._their_bytes + size > self.limits.shared:
            raise SegmentError(
                self.peer,
                f"a segment of {size} bytes beside {len(self._theirs)} of {self._their_bytes} bytes;"
                f" at most {self.limits.segments} of {self.limits.shared} bytes may be",
            )
        self._theirs[self._offers] = Segment.attached(self._descriptors.pop(0), size, self.peer)
        self._offers += 1
        self._their_bytes += size

    def _withdrawn(self, number: int) -> None:
        segment = self._theirs.pop(number, None)
        if segment is None:
            raise FrameError(self.peer, f"segment {number} was withdrawn, which it does not share")
        self._their_bytes -= segment.size

    def _free(self) -> list[Done]:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._theirs.clear()
        self._mine.clear()
        finished = super()._free() + [done for done in self._lent.values() if done is not None]
        self._lent.clear()
        return finished


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)
