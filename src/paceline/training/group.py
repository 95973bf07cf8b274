"""The workers of a run under `ddp`: no servers, no coordinator, but a process group of torch's own, on Gloo.

They meet through a file in the run's folder. When one of them is gone its connections close, and with them ends what
the others wait for; nothing is waited for longer than `PATIENCE`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]

from paceline.launch.run_file import MEETING
from paceline.nodes import Job, NodeError, PeerLost, StartFailed, Traffic

PATIENCE = 600.0  # seconds for an all-reduce, which takes as long as the slowest worker needs for a step


class Group:
    """What `Worker` is under the other models: how far this worker is, and what it has sent and received."""

    def __init__(self, job: Job, rank: int, folder: Path) -> None:
        self.rank = rank
        self.size = job.workers
        self.iteration = 0
        self.traffic = Traffic()
        self.held_for: dict[int, int] = {}  # nobody holds anything
        self.failure: NodeError | None = None
        self._start_within = job.start_within
        self._folder = folder

    def start(self) -> None:
        """Meet the others; returns when all of them are there."""
        join("gloo", self.rank, self.size, self._folder, self._start_within)

    def mean(self, values: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """Of all workers' values, in the same place, as DDP has it without a hook."""
        values.mul_(1 / self.size)
        self.traffic.all_reduced(values.nbytes, self.size)
        with self.noticing():
            under_way = dist.all_reduce(values, async_op=True).get_future()
        return under_way.then(self._arrived)  # type: ignore[no-any-return]

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """What torch raises in here is the end of the run, for a reason that torch does not know."""
        try:
            yield
        except RuntimeError as error:
            self.end(
                PeerLost(
                    f"another worker is gone, or has done fewer steps than worker {self.rank}, so iteration "
                    f"{self.iteration} cannot end: {error}"
                )
            )
            raise

    def end(self, failure: NodeError) -> None:
        """The run is over: the next step raises this."""
        self.failure = self.failure or failure

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def close(self, *, well: bool = True) -> None:
        """Leave; the others notice by their connections. How it went makes no difference to them."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _arrived(self, done: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        with self.noticing():
            return done.value()[0]


def join(backend: str, rank: int, size: int, folder: Path, within: float) -> None:
    """Meet the others through a file, and make torch's process group of all; returns when they are there."""
    on_loopback()
    try:
        store = FileStore(str(folder / MEETING), size)
        store.set(f"here {rank}", "")
        store.wait([f"here {other}" for other in range(size)], timedelta(seconds=within))
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=PATIENCE))
    except (RuntimeError, ValueError) as error:
        raise StartFailed(f"worker {rank} waited {within:g} s for the other {size - 1} of the run: {error}") from None


def on_loopback() -> None:
    """Gloo would ask for this machine's name, which need not lead anywhere; a run of ours is on one machine."""
    for name in ("lo", "lo0"):
        if name in (interface for _, interface in socket.if_nameindex()):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
