"""Who is connected to the coordinator, and who may come."""

from __future__ import annotations

from typing import Literal

from paceline.nodes import messages as m
from paceline.nodes.job import Job
from paceline.wire import Address

Role = Literal["worker", "server", "state server", "operator"]


class Peer:
    """A connection that has introduced itself."""

    def __init__(self, role: Role, number: int, pid: int, now: float) -> None:
        self.role = role
        self.number = number
        self.pid = pid
        self.heard = now
        self.incarnation = 0
        self.described: m.Describe | None = None
        self.address: Address | None = None
        self.ready = False  # a server: has set up what it holds. A worker: has been told to begin

    @property
    def name(self) -> str:
        number = f" {self.number}" if self.role in ("worker", "server") else ""
        return f"{self.role}{number} (pid {self.pid})"


class Roster:
    """All peers, by link."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._peers: dict[int, Peer] = {}

    def __contains__(self, link: int) -> bool:
        return link in self._peers

    def add(self, link: int, peer: Peer) -> None:
        self._peers[link] = peer

    def get(self, link: int) -> Peer | None:
        return self._peers.get(link)

    def remove(self, link: int) -> None:
        self._peers.pop(link, None)

    def all(self) -> list[tuple[int, Peer]]:
        return list(self._peers.items())

    def of(self, *roles: Role) -> list[tuple[int, Peer]]:
        return [(link, peer) for link, peer in self._peers.items() if peer.role in roles]

    @property
    def state_server(self) -> Address | None:
        """Where it can be reached, if there is one."""
        return next((peer.address for _, peer in self.of("state server")), None)

    def free_number(self) -> int:
        """The lowest that no worker has."""
        taken = self._numbers("worker")
        return next(number for number in range(len(taken) + 1) if number not in taken)

    # Why somebody may not come, in words; None if there is nothing against it.

    def wrong_server(self, server: int) -> str | None:
        if not 0 <= server < self._job.servers:
            return f"there is no server {server}; there are 0 to {self._job.servers - 1}"
        return f"server {server} is there already" if server in self._numbers("server") else None

    def wrong_state_server(self) -> str | None:
        if not self._job.asks:
            return f"{self._job.sync} needs no State Server"
        return "there is a State Server already" if self.of("state server") else None

    def wrong_worker(self, worker: int, *, more: bool) -> str | None:
        """`more`: may there be others than those that the run begins with?"""
        if worker < 0 or (worker >= self._job.workers and not more):
            return f"there is no worker {worker}; there are 0 to {self._job.workers - 1}"
        return f"worker {worker} is there already" if worker in self._numbers("worker") else None

    def missing(self) -> list[str]:
        """Who has not come yet, of those whom the run begins with."""
        wanted: dict[Role, int] = {"server": self._job.servers, "worker": self._job.workers}
        names = [
            f"{role} {number}"
            for role, count in wanted.items()
            for number in sorted(set(range(count)) - self._numbers(role))
        ]
        return names + (["the State Server"] if self._job.asks and self.state_server is None else [])

    def _numbers(self, role: Role) -> set[int]:
        return {peer.number for _, peer in self.of(role)}
