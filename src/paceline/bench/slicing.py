"""FluentPS's figure 6 in kind: what a round costs with a barrier, with overlap, and with elastic slicing on top.

    barrier    every pull waits until all workers have met at the coordinator; tensors are spread over servers by key,
               as PS-Lite does by default
    overlap    each shard goes on by itself: no barrier; still by key
    elastic    overlap, and every server holds as many elements as the others

The tensors are AlexNet's, of which one has more than half of the elements. Workers compute nothing, so a round is
communication alone, on one machine. Each server has one core: with all of them the fullest would have as much to
compute with as all servers together, and it would not matter how full it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Literal

from msgspec import Struct

from paceline.bench.rivals.group import Group
from paceline.bench.rivals.setup import Setup
from paceline.params import Space, by_key, elastic

Wire = Literal["auto", "tcp", "shared-memory"]
Slicing = Literal["elastic", "by-key"]

ALEXNET = {
    "conv1.weight": (64, 3, 11, 11),
    "conv1.bias": (64,),
    "conv2.weight": (192, 64, 5, 5),
    "conv2.bias": (192,),
    "conv3.weight": (384, 192, 3, 3),
    "conv3.bias": (384,),
    "conv4.weight": (256, 384, 3, 3),
    "conv4.bias": (256,),
    "conv5.weight": (256, 256, 3, 3),
    "conv5.bias": (256,),
    "fc6.weight": (4096, 9216),
    "fc6.bias": (4096,),
    "fc7.weight": (4096, 4096),
    "fc7.bias": (4096,),
    "fc8.weight": (1000, 4096),
    "fc8.bias": (1000,),
}
STEPS: dict[str, tuple[Slicing, bool]] = {
    "barrier": ("by-key", True),
    "overlap": ("by-key", False),
    "elastic": ("elastic", False),
}
MODULE = "paceline.bench.rivals.parameter_server"


class SlicingRow(Struct):
    """One step of the three. `fullest` is the share of the fullest server, as a multiple of the mean."""

    mode: str
    slicing: str
    wire: str
    workers: int
    servers: int
    megabytes: float
    milliseconds: float
    times_faster: float  # than the barrier
    fullest: float


def measure(repeats: int, workers: int, servers: int, wire: Wire, rounds: int = 3) -> Iterator[SlicingRow]:
    """The three take turns; the median of the repeats."""
    space = Space(ALEXNET)
    sizes = tuple(tensor.size for tensor in space.tensors)
    seconds: dict[str, list[float]] = {mode: [] for mode in STEPS}
    with ExitStack() as stack:
        groups = {}
        for mode, (slicing, barrier) in STEPS.items():
            setup = Setup(wire=wire, slicing=slicing, barrier=barrier, one_core=True, sizes=sizes)
            group = Group(
                f"paceline, {mode}",
                MODULE,
                workers=workers,
                servers=servers,
                elements=space.size,
                members=[("server", n) for n in range(servers)] + [("worker", n) for n in range(workers)],
                environment=setup.environment(),
            )
            groups[mode] = stack.enter_context(group)
        for _ in range(repeats):
            for mode, group in groups.items():
                seconds[mode].append(group.rounds(rounds) / rounds)
    base = median(seconds["barrier"])
    for mode, (slicing, _) in STEPS.items():
        loads = (by_key if slicing == "by-key" else elastic)(space, range(servers)).loads()
        taken = median(seconds[mode])
        fullest = max(loads.values()) * servers / space.size
        yield SlicingRow(
            mode, slicing, wire, workers, servers, space.size * 4 / 1e6, taken * 1e3, base / taken, fullest
        )
