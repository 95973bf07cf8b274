"""A group of processes that does rounds when it is told, and never outlives the benchmark.

Each process is a fresh Python that runs `member.main`. It is told what to do in lines on its stdin and answers in
lines on its stdout; `member` says which. Whatever ends the benchmark ends the group: leaving the context, an error, a
deadline; and where the benchmark itself is killed, its reaper kills the group.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import IO

import msgspec

from paceline.bench.rivals.member import Place, Role
from paceline.bench.rivals.reaper import Reaper, tell

PATIENCE = 180.0  # seconds until all are ready, many importing torch at a time, or until a batch of rounds is done
MEMBER = "from paceline.bench.rivals.member import main; main()"
LEAVE = 10.0  # seconds for a process to leave by itself


class RivalError(RuntimeError):
    """A rival that did not start, did not answer, or did not do what a round is."""


class Group:
    """The processes of one rival."""

    def __init__(
        self,
        name: str,
        module: str,
        *,
        workers: int,
        servers: int,
        elements: int,
        members: Sequence[tuple[Role, int]],
        environment: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.name = name
        self._module = module
        self._size = (workers, servers, elements)
        self._wanted = members
        self.patience = patience
        self._environment = _environment() | dict(environment or {})
        self._members: list[Member] = []
        self._reaper: Reaper | None = None

    def rounds(self, n: int) -> float:
        """One round to warm up, then `n` from a common start; the seconds from that until the last worker was done."""
        self._tell(signal.SIGCONT)
        try:
            return self._rounds(n, monotonic() + self.patience)
        finally:
            self._tell(signal.SIGSTOP)

    def _rounds(self, n: int, deadline: float) -> float:
        workers = [member for member in self._members if member.place.role == "worker"]
        for member in workers:
            member.tell(str(n))
        for member in workers:
            member.hear(deadline)
        for member in workers:
            member.tell("go")
        times = [member.hear(deadline).split() for member in workers]
        return max(float(end) for _, end in times) - min(float(begin) for begin, _ in times)

    def __enter__(self) -> Group:
        folder = Path(tempfile.mkdtemp(prefix="paceline-bench-"))
        self._reaper = Reaper(folder, self._environment)
        try:
            for role, rank in self._wanted:
                place = Place(role, rank, *self._size, str(folder))
                self._members.append(Member(self.name, self._module, place, self._reaper))
            deadline = monotonic() + self.patience
            for member in self._members:
                member.hear(deadline)
            self._tell(signal.SIGSTOP)
        except BaseException:
            self._end(0.0)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end(LEAVE if kind is None else 0.0)

    def _end(self, patience: float) -> None:
        """Let them leave by themselves, then kill what is left, of their descendants too."""
        deadline = monotonic() + patience
        self._tell(signal.SIGCONT)
        for member in self._members:
            member.dismiss()
        for member in self._members:
            member.end(deadline)
        self._members.clear()
        if self._reaper is not None:
            self._reaper.end()

    def _tell(self, number: int) -> None:
        """Stop or go on, all of them and what they have started: some libraries never sleep by themselves."""
        if self._reaper is not None:
            tell(self._reaper.session, number)


class Member:
    """One process of a group, seen from the benchmark."""

    def __init__(self, name: str, module: str, place: Place, reaper: Reaper) -> None:
        self.place = place
        self._name = f"{name}: {place.role} {place.rank}"
        self._errors: IO[bytes] = (Path(place.folder) / f"{place.role}{place.rank}.txt").open("w+b")
        self._heard = b""
        (stdin, told), (says, stdout) = os.pipe(), os.pipe()
        self._told: IO[bytes] = os.fdopen(told, "wb", buffering=0)
        self._says: IO[bytes] = os.fdopen(says, "rb", buffering=0)
        command = [sys.executable, "-c", MEMBER, module, msgspec.json.encode(place).decode()]
        reaper.start(command, (stdin, stdout, self._errors.fileno()))
        os.close(stdin)
        os.close(stdout)

    def tell(self, line: str) -> None:
        try:
            self._told.write(line.encode() + b"\n")
        except BrokenPipeError:
            raise self._failed("has ended") from None

    def hear(self, deadline: float) -> str:
        """The next line it says."""
        while b"\n" not in self._heard:
            more = self._hear_more(deadline)
            if more is None:
                raise self._failed("has not answered in time")
            if not more:
                raise self._failed("has ended")
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def dismiss(self) -> None:
        """Nothing more will be asked of it."""
        self._told.close()

    def end(self, deadline: float) -> None:
        """Once it has left, or not before the deadline."""
        while self._hear_more(deadline):
            pass
        self._says.close()
        self._errors.close()

    def _hear_more(self, deadline: float) -> bytes | None:
        """What it says next; nothing once it has ended, and None if the deadline is sooner."""
        ready, _, _ = select.select([self._says], [], [], max(0.0, deadline - monotonic()))
        return self._says.read(4096) if ready else None

    def _failed(self, what: str) -> RivalError:
        self._errors.seek(0)
        story = self._errors.read()[-2000:].decode(errors="replace").strip()
        return RivalError(f"{self._name} {what}\n{story}".strip())


def _environment() -> dict[str, str]:
    """The user's own, on the loopback interface, with one thread for each process."""
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), "lo")
    names = {"GLOO_SOCKET_IFNAME": loopback, "TP_SOCKET_IFNAME": loopback}
    return {**os.environ, **names, "OMP_NUM_THREADS": "1"}
