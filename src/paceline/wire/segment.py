"""Segments of shared memory without names: a memory file whose descriptor is handed over a Unix socket.

Nothing is left behind whoever is killed, since the kernel frees a segment with its last descriptor and mapping. The
maker seals it: it can neither shrink nor grow (a reader's mapping would fault), and nobody else can map it for writing.
A reader checks the seals before it maps, and gets a read-only view.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os

from paceline.wire.errors import SegmentError

SEAL_FUTURE_WRITE = 0x0010  # of fcntl.h; Python has no name for it. The maker's mapping stays writable.
STEADY = 0x0002 | 0x0004  # F_SEAL_SHRINK, F_SEAL_GROW
MOST_PARTS = 64  # views that are remembered


class Segment:
    """`size` bytes that peers can read in place. `view` is writable for the maker, read-only where it is attached."""

    def __init__(self, size: int, name: str = "paceline") -> None:
        if size <= 0:
            raise SegmentError(name, f"a segment of {size} bytes cannot be; at least 1")
        self.size = size
        self.name = name
        try:
            self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise SegmentError(name, f"no shared memory can be had: {error}") from None
        try:
            os.ftruncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, STEADY | SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL)
        except (OSError, ValueError, OverflowError) as error:
            os.close(self.fd)
            raise SegmentError(name, f"{size} bytes of shared memory cannot be had: {error}") from None
        self._show()

    @classmethod
    def attached(cls, fd: int, size: int, peer: str) -> Segment:
        """Map what a peer offers, if it is what it says and will stay so. Takes the descriptor over, also on error."""
        segment = cls.__new__(cls)
        segment.size, segment.name, segment.fd = size, peer, -1
        try:
            _check(fd, size, peer)
            segment._map = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        except (OSError, ValueError, OverflowError) as error:
            raise SegmentError(peer, f"a segment of {size} bytes cannot be mapped: {error}") from None
        finally:
            os.close(fd)
        segment._show()
        return segment

    def _show(self) -> None:
        self.view = memoryview(self._map)
        self._parts: dict[tuple[int, int], memoryview] = {}
        self._starts: dict[int, int] = {id(self.view): 0}  # of the views, by their identity

    def part(self, start: int, stop: int) -> memoryview:
        """A view of some of the bytes: the same object as before, as long as few different ones are asked for.

        So whoever has made something of a view, a tensor say, can tell that it comes again.
        """
        part = self._parts.get((start, stop))
        if part is None:
            if len(self._parts) == MOST_PARTS:
                self._forget()
            part = self._parts[start, stop] = self.view[start:stop]
            self._starts[id(part)] = start
        return part

    def start_of(self, view: object) -> int | None:
        """Where a view begins that is `self.view` or was given by `part`; None: it is no such view, or forgotten."""
        return self._starts.get(id(view))

    def _forget(self) -> None:
        self._parts.clear()
        self._starts = {id(self.view): 0}

    def close(self) -> None:
        """Give up the descriptor, and the mapping as soon as nobody has a view of it any more."""
        self._forget()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        with contextlib.suppress(BufferError):
            self.view.release()
            self._map.close()


def _check(fd: int, size: int, peer: str) -> None:
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise SegmentError(peer, "a descriptor was offered that is no memory file") from None
    if seals & STEADY != STEADY:
        raise SegmentError(peer, f"a segment with the seals {seals:#x} may shrink; {STEADY:#x} are needed")
    there = os.fstat(fd).st_size
    if there != size:
        raise SegmentError(peer, f"a segment of {there} bytes was said to have {size}")
