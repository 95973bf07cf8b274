"""The core's machines in virtual time: the same shards and workers as in a real run, and no tensor, socket or clock."""

from paceline.sim.cluster import Cluster, ClusterError, Group, Hiccup, Servers, read
from paceline.sim.record import Lane, Span, Timeline
from paceline.sim.timeline import simulate, simulate_cluster

__all__ = [
    "Cluster",
    "ClusterError",
    "Group",
    "Hiccup",
    "Lane",
    "Servers",
    "Span",
    "Timeline",
    "read",
    "simulate",
    "simulate_cluster",
]
