"""Frames: how a stream of bytes is cut into messages. Pure; somebody else reads and writes the socket.

A frame is a prelude of 16 bytes, a header and, if it is an inline message, a payload:

    magic  kind  0  header length  size
    u16    u8    u8 u32            u64        little-endian

`size` is the payload's length for messages; for the other kinds see below. All limits are checked on the prelude,
before anything is allocated or asked for. `Reader` has the next bytes put into a small buffer or, within a large
payload, into the very memory that the payload is for.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from paceline.wire.errors import FrameError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

MAGIC = 0x9C1E
PRELUDE = Struct("<HBBIQ")
PRELUDE_BYTES = PRELUDE.size
REFERENCE_HEAD = Struct("<QQQ")  # number, segment, offset: these open the header of a REFERENCE

BARE = 1  # a message without payload; size is 0
INLINE = 2  # a message whose payload of `size` bytes follows
REFERENCE = 3  # a message whose payload of `size` bytes lies in a shared segment
RELEASE = 4  # the reader is done with reference number `size`
SEGMENT = 5  # a descriptor of shared memory of `size` bytes comes with this frame; segments are counted from 0
WITHDRAWN = 6  # segment number `size` will not be used any more
GOODBYE = 7  # the header says why, in UTF-8
HANDSHAKE = 8  # before all others, and only then

SMALL = 64 * 1024  # payloads up to this size go inline on every wire
MAX_HEADER = 64 * 1024
MAX_GOODBYE = 1024
MAX_HANDSHAKE = 8 * 1024
BUFFER = PRELUDE_BYTES + REFERENCE_HEAD.size + MAX_HEADER + SMALL

PIECE = 1024 * 1024  # bytes received at once

Sink = Callable[[bytes, int], memoryview | None]
Table = dict[int, tuple[int, int]]  # kind: most bytes of header, most of size
Frame = tuple[int, bytes, int, memoryview | None]  # kind, header, size, payload

ANY = (1 << 64) - 1


def prelude(kind: int, header: int, size: int) -> bytes:
    return PRELUDE.pack(MAGIC, kind, 0, header, size)


def as_bytes(payload: Buffer) -> memoryview:
    """The memory of an array as a row of bytes; it must be in one piece."""
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else memoryview(b"")


def fresh(_: bytes, size: int) -> memoryview:
    """The sink of those who did not choose one: new memory for every payload."""
    return memoryview(bytearray(size))


class Reader:
    """Cuts what was received into frames. `table` holds the kinds that may come now, and their limits."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.sink: Sink = fresh
        self.blocked = False  # the sink had no place for the payload that is next
        self.rest: memoryview | None = None  # within a payload: where the part of it goes that is still to come
        self.stop = 0  # bytes in the buffer; with 0 there is no frame to be had
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._header: bytes | None = None  # of the inline message that is being received
        self._size = 0
        self._target: memoryview | None = None  # where its payload goes

    @property
    def empty(self) -> bool:
        """Nothing of a frame is here: a stream that ends now ends well."""
        return self._header is None and self._start == self.stop

    def fill(self, receive: Callable[[memoryview], int]) -> int:
        """Have the next bytes put where they belong. There is always room, unless the sink is being waited for."""
        if self.rest is not None:
            count = receive(self.rest[:PIECE])
            self.rest = self.rest[count:]
        else:
            count = receive(self._view[self.stop :] if self.stop else self._view)
            self.stop += count
        return count

    def landed(self, count: int) -> None:
        """So many bytes of the payload have been put into `rest` by somebody else."""
        assert self.rest is not None
        self.rest = self.rest[count:]

    def next(self) -> Frame | None:
        """The next whole frame. None: more bytes are needed or, if `blocked`, a place for the payload."""
        if self._header is not None:
            return self._go_on(self._header)
        start, stop = self._start, self.stop
        if stop - start < PRELUDE_BYTES:
            self._compact()
            return None
        magic, kind, zero, length, size = PRELUDE.unpack_from(self._buffer, start)
        limit = self.table.get(kind)
        if magic != MAGIC or zero or limit is None or length > limit[0] or size > limit[1]:
            raise self._error(magic, kind, zero, length, size)
        start += PRELUDE_BYTES
        if stop - start < length:
            self._compact()
            return None
        header = self._view[start : start + length].tobytes()
        self._start = start + length
        if kind == INLINE:
            self._size = size
            return self._place(header)
        if self._start == stop:
            self._start = self.stop = 0
        return kind, header, size, None

    def close(self) -> None:
        """Give the memory up now: the garbage collector would, but only in its own time."""
        self.sink = fresh
        self.rest = self._target = None
        self._view.release()
        self._buffer = bytearray()

    def _go_on(self, header: bytes) -> Frame | None:
        if self._target is None:
            return self._place(header)
        if self.rest:
            return None
        payload, self._header, self._target, self.rest = self._target, None, None, None
        return INLINE, header, self._size, payload

    def _place(self, header: bytes) -> Frame | None:
        size = self._size
        target = self.sink(header, size)
        self.blocked = target is None
        if target is None:
            self._header = header
            return None
        if target.nbytes != size or target.readonly:
            raise ValueError(
                f"the sink gave {target.nbytes} bytes for a payload of {size}; it must be as large, writable"
            )
        start, stop = self._start, self._start + size
        if stop < self.stop:
            self._start = stop
        else:
            stop = self.stop
            self._start = self.stop = 0
        if stop - start == size:
            target[:] = self._view[start:stop]
            self._header = None
            return INLINE, header, size, target
        target[: stop - start] = self._view[start:stop]
        self._header, self._target, self.rest = header, target, target[stop - start :]
        return None

    def _compact(self) -> None:
        """Make room behind the part of a frame that is here."""
        here = self.stop - self._start
        if self._start:
            self._view[:here] = self._view[self._start : self.stop]
            self._start, self.stop = 0, here

    def _error(self, magic: int, kind: int, zero: int, length: int, size: int) -> FrameError:
        limit = self.table.get(kind)
        if magic != MAGIC or zero:
            return FrameError("", f"a frame opens with {magic:#06x}, not {MAGIC:#06x}: this is not our protocol")
        if limit is None:
            return FrameError("", f"a frame of kind {kind} may not come here; {sorted(self.table)} may")
        return FrameError("", f"a frame of kind {kind} declares {length} and {size} bytes; at most {limit} may be")
