"""Starting the nodes of a run as processes."""

from paceline.launch.local import Ended, LocalCluster
from paceline.launch.node import Post, Seat

__all__ = ["Ended", "LocalCluster", "Post", "Seat"]
