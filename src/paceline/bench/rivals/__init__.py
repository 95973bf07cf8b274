"""What `paceline bench wire` compares Paceline with: other ways to do the same round, each in real processes.

A round: each of W workers pushes M bytes of float32, they are summed and applied, and each worker ends with the new
parameters. A rival starts a group of processes that stays up; asked for some rounds it does them and says how many
seconds they took, from when all workers were ready until all were done. In between its processes are stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Literal, Protocol

from msgspec import Struct

from paceline.bench.rivals.group import Group, RivalError
from paceline.bench.rivals.setup import Setup

__all__ = ["KNOWN", "MEMCPY", "USUAL", "Group", "Processes", "Rival", "RivalError", "Running", "elements"]


Wire = Literal["tcp", "shared-memory"]


class Running(Protocol):
    """A group that is up."""

    def rounds(self, n: int) -> float:
        """Do so many rounds; the seconds that they took together."""
        ...


class Rival(Protocol):
    """A system to measure. Paceline is one more of these."""

    @property
    def name(self) -> str: ...

    @property
    def transport(self) -> str: ...

    @property
    def serverless(self) -> bool:
        """Are there no servers beside the workers?"""
        ...

    def unfit(self, workers: int, servers: int) -> str | None:
        """Why it cannot be measured so, if it cannot, and what would help."""
        ...

    def start(self, workers: int, servers: int, megabytes: float) -> AbstractContextManager[Running]: ...


class Processes(Struct, frozen=True):
    """A rival that is a module of this package, run in one process for each worker and server."""

    name: str
    transport: str
    module: str
    serverless: bool = False
    alone: bool = False  # is it one process, whatever the numbers?
    fewest: int = 1  # workers
    most_servers: int = 1
    package: str = "torch"  # that it cannot do without
    environment: Mapping[str, str] = {}

    def unfit(self, workers: int, servers: int) -> str | None:
        if find_spec(self.package) is None:
            return f"{self.package} is not installed; pip install 'paceline[bench]' does that, and make bench"
        if workers < self.fewest:
            return f"it needs at least {self.fewest} workers"
        if servers > self.most_servers and not self.serverless:
            return f"it has {self.most_servers} server{'s' * (self.most_servers > 1)} at most"
        return None

    def start(self, workers: int, servers: int, megabytes: float) -> Group:
        processes = 1 if self.alone else workers
        return Group(
            self.name,
            f"{__name__}.{self.module}",
            workers=workers,
            servers=servers,
            elements=elements(megabytes),
            members=[("worker", rank) for rank in range(processes)]
            + [("server", rank) for rank in range(0 if self.alone or self.serverless else servers)],
            environment=self.environment,
        )


def elements(megabytes: float) -> int:
    """How many float32 numbers so many million bytes are."""
    return round(megabytes * 1e6 / 4)


RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # elsewhere too it means: stay on the loopback interface
}
# Its workers as eager as all others, and an object store whose memory the kernel has cleared beforehand.
RAY_AT_ITS_BEST = {**RAY_ENVIRONMENT, "RAY_preallocate_plasma_memory": "1", "RAY_worker_niceness": "0"}
# One heap that never gives memory back: else every answer is written to memory that the kernel must clear first.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34)}

MEMCPY = Processes("memcpy", "memory", "memcpy", serverless=True, alone=True, package="numpy")
STORE = Processes("store", "memory", "store", serverless=True, alone=True)
GLOO = Processes("gloo", "tcp", "gloo", serverless=True, fewest=2)
TORCH_RPC = Processes("torch_rpc", "tensorpipe", "torch_rpc", most_servers=8)
RAY = Processes("ray", "object store", "ray_actor", alone=True, package="ray", environment=RAY_ENVIRONMENT)
RAY_TUNED = Processes("ray_tuned", "object store", "ray_actor", alone=True, package="ray", environment=RAY_AT_ITS_BEST)
TORCH_RPC_TUNED = Processes("torch_rpc_tuned", "tensorpipe", "torch_rpc", most_servers=8, environment=ONE_HEAP)


def _paceline(name: str, transport: Wire, *, copied: bool = False, in_place: bool = False) -> Processes:
    setup = Setup(wire=transport, copied=copied, in_place=in_place)
    return Processes(name, transport, "parameter_server", most_servers=64, environment=setup.environment())


PACELINE = (_paceline("paceline", "shared-memory"), _paceline("paceline", "tcp"))
IN_PLACE = _paceline("paceline_in_place", "shared-memory", in_place=True)
COPIED = _paceline("paceline_copied", "shared-memory", copied=True)

# Measured unless the user names systems.
USUAL: tuple[Rival, ...] = (*PACELINE, IN_PLACE, COPIED, STORE, GLOO, TORCH_RPC, RAY)
KNOWN: tuple[Rival, ...] = (*USUAL, TORCH_RPC_TUNED, RAY_TUNED)
