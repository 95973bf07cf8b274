"""Frames: how a stream of bytes is cut into messages. Pure; somebody else reads and writes the socket.

A frame is a prelude of 16 bytes, a header and, if it is an inline message, a payload:

    magic  kind  0  header length  size
    u16    u8    u8 u32            u64        little-endian

`size` is the payload's length for messages; for the other kinds see below. All limits are checked on the prelude,
before anything is allocated or asked for. `Reader.room()` says where the next bytes are to be put: a small buffer, or,
within a large payload, the very memory that the payload is for.
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
        self._buffer = bytearray(BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._stop = 0
        self._header: bytes | None = None  # of the inline message that is being received
        self._size = 0
        self._target: memoryview | None = None  # where its payload goes
        self._rest: memoryview | None = None  # the part of that which is still to come

    @property
    def midway(self) -> bool:
        """Within the payload of a message: the next bytes go where the sink said."""
        return self._rest is not None

    @property
    def empty(self) -> bool:
        """Nothing of a frame is here: a stream that ends now ends well."""
        return self._header is None and self._start == self._stop

    def room(self) -> memoryview:
        """Where the next bytes are to be put. Never empty, unless the sink is being waited for."""
        if self._rest is not None:
            return self._rest
        if self._stop == 0:
            return self._view
        return self._view[self._stop :]

    def took(self, count: int) -> None:
        """So many bytes were put into what `room()` gave last."""
        if self._rest is not None:
            self._rest = self._rest[count:]
        else:
            self._stop += count

    def next(self) -> Frame | None:
        """The next whole frame. None: more bytes are needed or, if `blocked`, a place for the payload."""
        if self._header is not None:
            return self._go_on(self._header)
        start, stop = self._start, self._stop
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
        header = bytes(self._view[start : start + length])
        start += length
        if start == stop:
            start = self._stop = 0
        self._start = start
        if kind != INLINE:
            return kind, header, size, None
        self._size = size
        return self._place(header)

    def _go_on(self, header: bytes) -> Frame | None:
        if self._target is None:
            return self._place(header)
        if self._rest:
            return None
        return self._whole(header, self._target)

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
        here = min(size, self._stop - self._start)
        target[:here] = self._view[self._start : self._start + here]
        self._start += here
        if self._start == self._stop:
            self._start = self._stop = 0
        if here == size:
            return self._whole(header, target)
        self._header, self._target, self._rest = header, target, target[here:]
        return None

    def _whole(self, header: bytes, payload: memoryview) -> Frame:
        self._header = self._target = self._rest = None
        return INLINE, header, self._size, payload

    def _compact(self) -> None:
        """Make room behind the part of a frame that is here."""
        here = self._stop - self._start
        if self._start:
            self._view[:here] = self._view[self._start : self._stop]
            self._start, self._stop = 0, here

    def _error(self, magic: int, kind: int, zero: int, length: int, size: int) -> FrameError:
        limit = self.table.get(kind)
        if magic != MAGIC or zero:
            return FrameError("", f"a frame opens with {magic:#06x}, not {MAGIC:#06x}: this is not our protocol")
        if limit is None:
            return FrameError("", f"a frame of kind {kind} may not come here; {sorted(self.table)} may")
        return FrameError("", f"a frame of kind {kind} declares {length} and {size} bytes; at most {limit} may be")
