"""What FluentPS's targets share: its clusters, and how its figures are counted."""

from __future__ import annotations

from msgspec import Struct

from paceline.sim.cluster import Cluster, Group, Servers
from paceline.sim.timeline import simulate_cluster

SPREAD = 0.16  # of the workers' paces, from the fastest to the slowest, over their mean; from table IV's SSP, soft
JITTER = 0.1  # how far off its pace an iteration may be, as a share: that of `paceline simulate`
ASP_SECONDS = {"AlexNet": 45.85, "ResNet-56": 37.94}  # table IV, CIFAR-10, seconds per 100 iterations


class Counted(Struct, frozen=True):
    """Both per 100 iterations of a worker, as in table IV; held pulls are those of all workers on all servers."""

    held: float
    seconds: float


def unequal(workers: int, servers: int, seconds: float, seed: int = 0) -> Cluster:
    """Workers that are persistently slightly unequal: paces in equal steps around a mean."""
    steps = [(2 * worker / (workers - 1) - 1) / 2 for worker in range(workers)]  # from -1/2 to 1/2
    groups = tuple(Group(seconds=seconds * (1 + SPREAD * step), jitter=JITTER) for step in steps)
    return Cluster(workers=groups, servers=Servers(count=servers), seed=seed)


def alexnet() -> Cluster:
    """64 workers and a server; the mean pace is what ASP takes."""
    return unequal(64, 1, ASP_SECONDS["AlexNet"] / 100)


def resnet() -> Cluster:
    return unequal(32, 8, ASP_SECONDS["ResNet-56"] / 100)


def counted(model: str, cluster: Cluster, iterations: int) -> Counted:
    """Run for so many iterations of a worker at the mean pace."""
    pace = sum(group.seconds for group in cluster.workers) / cluster.size
    run = simulate_cluster(model, cluster, iterations * pace, watched=False)
    done = run.iterations / cluster.size
    return Counted(100 * run.held_pulls / done, 100 * run.seconds / done)
