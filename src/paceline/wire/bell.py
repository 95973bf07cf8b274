"""A bell that any thread can ring, and a selector can wait for."""

from __future__ import annotations

import contextlib
import socket
import threading


class Bell:
    def __init__(self) -> None:
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._lock = threading.Lock()  # or a ring could reach whoever got the descriptor's number next

    def fileno(self) -> int:
        """Negative once it is closed."""
        return self._bell.fileno()

    def ring(self) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._rope.send(b"!")

    def hush(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._bell.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        with self._lock:
            self._bell.close()
            self._rope.close()
