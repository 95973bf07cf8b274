"""A process that starts all others of a group, and ends them once the benchmark lets go of it, by will or by dying.

They are in one session, its own, and what they start stays in that, also what a library starts on its own and what has
lost its parent. That is how they are found, in `/proc`; on a system without one, processes leave when their stdin ends.
One session for all also lets them yield a core to each other: Linux may share the time out between sessions first.

It is run as a file, so that it is there at once: nothing of the package is imported.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

MOST = 65536  # bytes of a command


class Reaper:
    """The benchmark's hold on its reaper, whose environment all processes of the group have."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(folder), str(theirs.fileno())],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def session(self) -> int:
        return self._process.pid

    def start(self, command: Sequence[str], files: Sequence[int]) -> None:
        """Start a process with these descriptors as its stdin, stdout and stderr."""
        socket.send_fds(self._line, [json.dumps(command).encode()], files)

    def end(self) -> None:
        """Have the group killed and its folder removed."""
        self._line.close()
        self._process.wait(60.0)


def main() -> None:
    folder, line = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    started = []
    while True:
        command, files, _, _ = socket.recv_fds(line, MOST, 3)
        if not command:
            break
        stdin, stdout, stderr = files
        started.append(subprocess.Popen(json.loads(command), stdin=stdin, stdout=stdout, stderr=stderr))
        for file in files:
            os.close(file)
    while tell(os.getpid(), signal.SIGKILL):
        pass
    shutil.rmtree(folder, ignore_errors=True)


def tell(session: int, number: int) -> int:
    """Send a signal to every process of a session but its reaper; how many there are."""
    found = 0
    for process in members(session):
        with suppress(ProcessLookupError):
            os.kill(process, number)
            found += 1
    return found


def members(session: int) -> Iterator[int]:
    """The processes of a session that have not ended, but for its reaper."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it is gone
            state, _, _, its = path.read_text().rpartition(")")[2].split()[:4]
            process = int(path.parent.name)
            if int(its) == session and process != session and state not in "ZX":
                yield process


if __name__ == "__main__":
    main()
