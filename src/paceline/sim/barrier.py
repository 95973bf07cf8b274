"""BSP behind a coordinator's barrier, for the comparison in FluentPS's figure 6 and nothing else.

A worker pushes, and may pull only after every shard has closed the round: each shard tells the coordinator, and the
coordinator tells the workers. That is how PS-Lite does it; here it is what overlap is measured against. The coordinator
is as far away as the first server.
"""

from __future__ import annotations

from functools import partial

from paceline.sim.cluster import Cluster
from paceline.sim.record import Timeline
from paceline.sim.timeline import MESSAGE, SIGNIFICANCE, Node, Simulation
from paceline.sync import Event, parse


def simulate_barrier(cluster: Cluster, until: float, *, watched: bool = True) -> Timeline:
    """Let the workers of a cluster train under `bsp` until a time, with a barrier between pushes and pulls."""
    return BarredSimulation(cluster, watched=watched).run(until)


class BarredSimulation(Simulation):
    """The same shards and machines. What it adds: the coordinator, and two messages before a pull may start."""

    def __init__(self, cluster: Cluster, *, watched: bool = True) -> None:
        super().__init__(parse("bsp"), cluster, watched=watched)
        self._latencies = cluster.latencies
        self._closed = [0] * self.shards  # how many rounds each shard has closed
        self._told = [0] * self.shards  # and how many the coordinator knows of
        self._open = 0  # how many rounds it has let the workers pull after
        self._barred = [BarredNode(self, node.worker) for node in self.nodes]
        self.nodes = [*self._barred]

    def deliver(self, shard: int, event: Event) -> None:
        super().deliver(shard, event)
        closed = self.hosts[shard].view.clock
        if closed > self._closed[shard]:
            self._closed[shard] = closed
            server = shard % self.servers
            updated = max(self.now, self._busy[server])
            self.at(updated + self._latencies[server], MESSAGE, partial(self._report, shard, closed))

    def _report(self, shard: int, closed: int) -> None:
        """At the coordinator."""
        self._told[shard] = closed
        if min(self._told) > self._open:
            self._open = min(self._told)
            for node in self._barred:
                self.network.to_worker(0, node.worker, 0.0, node.released)


class BarredNode(Node):
    """A worker that pulls when the coordinator lets it."""

    def _push(self, weight: float = 1.0) -> None:
        push = self.machine.push(SIGNIFICANCE)
        self._send([(shard, push) for shard in range(self.simulation.shards)])

    def released(self) -> None:
        pull, commands = self.machine.pull(self.simulation.now)
        self._send([(shard, pull) for shard in range(self.simulation.shards)])
        self._decided(commands, ())
