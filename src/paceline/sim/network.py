"""The lines between virtual machines: what is sent takes its turn on the sender's line, and again on the receiver's.

A message is under way on both lines at the same time, as packets are, so alone it takes its size over the slower of the
two, and the latency. Bursts queue: four gradients for one server arrive one after the other. Between two machines
nothing overtakes anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from paceline.sim.cluster import Cluster
from paceline.slowness import Delays

BITS = 8 / 1e9  # gigabits in a byte

Action = Callable[[], None]


class Agenda(Protocol):
    """What is to happen, and when it is now."""

    now: float

    def at(self, time: float, priority: int, action: Action) -> None: ...


class Line:
    """One machine's, one way."""

    __slots__ = ("free", "seconds_per_byte")

    def __init__(self, gigabits: float) -> None:
        self.seconds_per_byte = BITS / gigabits
        self.free = 0.0  # when it has sent, or received, all that it was given so far


class Network:
    """All lines of a cluster. What arrives is put on the agenda with this priority."""

    def __init__(self, cluster: Cluster, agenda: Agenda, priority: int) -> None:
        everyone = cluster.network.gigabits
        speeds = [group.gigabits or everyone for group in cluster.workers for _ in range(group.count)]
        servers = [cluster.servers.gigabits or everyone] * cluster.servers.count
        self._workers = [(Line(speed), Line(speed)) for speed in speeds]
        self._servers = [(Line(speed), Line(speed)) for speed in servers]
        self._latencies = cluster.latencies
        slow = cluster.slownesses
        self._late = [Delays(slow, "server", number, cluster.seed) for number in range(len(servers))]
        self._agenda, self._priority = agenda, priority

    def to_server(self, worker: int, server: int, size: float, action: Action) -> None:
        """Send so many bytes; the action is what happens when they are there."""
        self._send(self._workers[worker][0], self._servers[server][1], size, self._latencies[server], action)

    def to_worker(self, server: int, worker: int, size: float, action: Action) -> None:
        self._send(self._servers[server][0], self._workers[worker][1], size, self._latencies[server], action)

    def late(self, server: int) -> float:
        """By how many seconds the server delays its next answer, because it was slowed down."""
        delays = self._late[server]
        return delays.after(0.0, self._agenda.now) if delays else 0.0

    def _send(self, out: Line, into: Line, size: float, latency: float, action: Action) -> None:
        now = self._agenda.now
        if not (out.seconds_per_byte or into.seconds_per_byte):
            self._agenda.at(now + latency, self._priority, action)
            return
        begun = max(now, out.free)
        out.free = begun + size * out.seconds_per_byte
        arrives = partial(self._arrives, into, size, out.free + latency, action)
        self._agenda.at(begun + latency, self._priority, arrives)

    def _arrives(self, into: Line, size: float, last: float, action: Action) -> None:
        """The first byte is there; the last one cannot be before `last`."""
        into.free = max(max(self._agenda.now, into.free) + size * into.seconds_per_byte, last)
        self._agenda.at(into.free, self._priority, action)
