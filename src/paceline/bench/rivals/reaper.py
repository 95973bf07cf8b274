"""A process that ends all others of a group once the benchmark lets go of it, by will or by dying.

Each process of a group begins a session, and what it starts stays in that, also what a library starts on its own and
what has lost its parent. That is how they are found, in `/proc`; on a system without one, processes leave when their
stdin ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path


class Reaper:
    """The benchmark's hold on its reaper."""

    def __init__(self, folder: Path) -> None:
        code = "from paceline.bench.rivals.reaper import main; main()"
        command = [sys.executable, "-c", code, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)

    def add(self, session: int) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"%d\n" % session)

    def end(self) -> None:
        """Have the group killed and its folder removed."""
        self._process.communicate(timeout=60.0)


def main() -> None:
    folder = sys.argv[1]
    sessions = {int(line) for line in sys.stdin}
    while tell(sessions, signal.SIGKILL):
        pass
    shutil.rmtree(folder, ignore_errors=True)


def tell(sessions: Collection[int], number: int) -> int:
    """Send a signal to every process of these sessions; how many there are."""
    found = 0
    for process in members(sessions):
        with suppress(ProcessLookupError):
            os.kill(process, number)
            found += 1
    return found


def members(sessions: Collection[int]) -> Iterator[int]:
    """The processes of these sessions that have not ended."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it is gone
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
            if int(session) in sessions and state not in "ZX":
                yield int(path.parent.name)
