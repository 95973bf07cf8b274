"""The core's machines in virtual time: the same shards and workers as in a real run, and no tensor, socket or clock."""

from paceline.sim.cluster import Cluster, ClusterError, Hiccup
from paceline.sim.record import Lane, Span, Timeline
from paceline.sim.timeline import simulate

__all__ = ["Cluster", "ClusterError", "Hiccup", "Lane", "Span", "Timeline", "simulate"]
