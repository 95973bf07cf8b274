"""What keeping workers together adds to a training step, beside `DistributedDataParallel`.

Workers train a real network on a batch each: without any communication, with DDP on Gloo, and with Paceline under
`bsp`, which waits for everyone as DDP does; so what differs is the cost of communication alone. The systems take turns,
and what one adds is the median of its differences to no communication, turn by turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from typing import get_args

from msgspec import Struct

from paceline.bench.rivals.group import Group
from paceline.bench.rivals.setup import Net, System, Training
from paceline.bench.turns import take_turns

NETS: tuple[Net, ...] = get_args(Net)
SYSTEMS: tuple[System, ...] = get_args(System)
SERVERS = 1


class StepRow(Struct, frozen=True):
    """One system with one network. `added_ms` is what it adds to a step, `of_ddp` that in parts of what DDP adds."""

    net: str
    device: str
    workers: int
    system: str
    step_ms: float
    added_ms: float
    of_ddp: float


def measure(nets: Sequence[Net], workers: Sequence[int], repeats: int, device: str = "cpu") -> Iterator[list[StepRow]]:
    """For each network and number of workers, the rows of all systems."""
    for net in nets:
        for count in workers:
            with ExitStack() as stack:
                groups = [stack.enter_context(_group(net, system, count, device)) for system in SYSTEMS]
                taken = take_turns(groups, repeats)
            alone = taken[0]
            added = [median(a - b for a, b in zip(mine, alone, strict=True)) for mine in taken]
            ddp = added[SYSTEMS.index("ddp")]
            yield [
                StepRow(net, device, count, system, 1e3 * median(mine), 1e3 * more, more / ddp)
                for system, mine, more in zip(SYSTEMS, taken, added, strict=True)
            ]


def _group(net: Net, system: System, workers: int, device: str) -> Group:
    servers = SERVERS if system.startswith("paceline") else 0
    return Group(
        f"{system} with {net}",
        "paceline.bench.rivals.training",
        workers=workers,
        servers=SERVERS,
        elements=0,
        members=[("worker", rank) for rank in range(workers)] + [("server", rank) for rank in range(servers)],
        environment=Training(net, system, device).environment(),
    )
