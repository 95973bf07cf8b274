"""What is waiting to be written to a socket: frames in order, and payloads that are referenced, never copied."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

Done = Callable[[], None]

ENTRY = 200  # bytes that an entry costs beside what is in it
MOST_BUFFERS = 32  # handed to the kernel in one call
MOST_BYTES = 4 * 1024 * 1024


class Outbox:
    """`queued` counts all bytes that wait, `held` what the queue itself keeps in memory. Owns the descriptors in it."""

    def __init__(self) -> None:
        self.queued = 0
        self.held = 0
        self._entries: deque[tuple[memoryview, int, Done | None, int | None]] = deque()  # bytes, held, done, descriptor

    def __bool__(self) -> bool:
        return bool(self._entries)

    def put(self, data: memoryview, held: int, done: Done | None = None, descriptor: int | None = None) -> None:
        self._entries.append((data, held + ENTRY, done, descriptor))
        self.queued += data.nbytes
        self.held += held + ENTRY

    @property
    def first(self) -> memoryview | None:
        """What is to be written next, without its followers."""
        return self._entries[0][0] if self._entries else None

    def batch(self) -> tuple[list[memoryview], int | None]:
        """What to write next, in one call; a descriptor that is to go along, then with its own frame alone."""
        buffers: list[memoryview] = []
        room = MOST_BYTES
        for data, _, _, descriptor in self._entries:
            if descriptor is not None:
                return (buffers, None) if buffers else ([data], descriptor)
            buffers.append(data if data.nbytes <= room else data[:room])
            room -= data.nbytes
            if room <= 0 or len(buffers) == MOST_BUFFERS:
                break
        return buffers, None

    def sent(self, count: int) -> list[Done]:
        """So many bytes are written. Returns whom to tell that its payload is no longer needed."""
        self.queued -= count
        finished: list[Done] = []
        entries = self._entries
        while entries:
            data, held, done, descriptor = entries[0]
            if count < data.nbytes:
                if count:
                    _close(descriptor)
                    entries[0] = (data[count:], held, done, None)
                break
            _close(descriptor)
            count -= data.nbytes
            self.held -= held
            entries.popleft()
            if done is not None:
                finished.append(done)
        return finished

    def drop(self) -> list[Done]:
        """Forget everything. Returns whom to tell."""
        finished = []
        for _, _, done, descriptor in self._entries:
            _close(descriptor)
            if done is not None:
                finished.append(done)
        self._entries.clear()
        self.queued = self.held = 0
        return finished


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
