"""FluentPS's figure 6: computation and communication with a barrier, with overlap, and with elastic slicing on top.

barrier    a pull may start when every shard has closed the round; tensors are spread over servers by key
overlap    each shard goes on by itself; still by key
elastic    overlap, and every server holds as many elements as the others
"""

from __future__ import annotations

from itertools import product

import torch
from matplotlib.figure import Figure
from msgspec import Struct

from paceline import nets
from paceline.bench.slicing import ALEXNET
from paceline.params import Space, by_key, elastic
from paceline.reproduce import picture, verdicts
from paceline.reproduce.fluentps import ASP_SECONDS, JITTER
from paceline.reproduce.target import Claim, Progress, Result, Row, Target
from paceline.sim.barrier import simulate_barrier
from paceline.sim.cluster import Cluster, Group, Network, Servers
from paceline.sim.record import Span
from paceline.sim.timeline import simulate_cluster

WORKERS = (8, 16, 32)
SERVERS = 8
MODES = ("barrier", "overlap", "elastic")
EVEN = "barrier, sliced evenly"  # which the paper does not have: what overlap is worth where no server is fuller
GIGABITS = 25 / 32  # of each machine: 25 Gbit/s in all, section IV-A
LATENCY = 0.0001
COMPUTING = ASP_SECONDS["ResNet-56"] / 100 * 32  # seconds for a batch of 4096 on one machine
SAME = 1.01  # times as fast, and less, is as good as no difference
ROUNDS, QUICKLY = 60, 6
PAPER = {  # section IV-B1, all of them 'up to'; the figure's bars are not in the text
    "overlap, times as fast as barrier": 4.26,
    "elastic, times as fast as overlap": 1.42,
    "elastic, times as fast as barrier": 6.0,
    "less communication: overlap": 86.0,
    "less communication: elastic, over overlap": 55.0,
    "less communication: elastic, over barrier": 93.7,
}


class Cost(Struct, frozen=True):
    """Seconds of a round: all of it, and what of it is no computing, waits for others included."""

    total: float
    communication: float


Cells = dict[tuple[str, int, str], Cost]  # by net, workers and mode


def spaces() -> dict[str, Space]:
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in nets.resnet56().named_parameters()}
    return {"ResNet-56": Space(shapes), "AlexNet": Space(ALEXNET)}


def cluster(space: Space, workers: int, mode: str) -> Cluster:
    loads = (elastic if mode in ("elastic", EVEN) else by_key)(space, range(SERVERS)).loads()
    return Cluster(
        workers=(Group(seconds=COMPUTING / workers, count=workers, jitter=JITTER),),
        servers=Servers(count=SERVERS),
        network=Network(gigabits=GIGABITS, latency=LATENCY),
        megabytes=space.size * 4 / 1e6,
        sizes=tuple(float(loads.get(server, 0)) for server in range(SERVERS)),
    )


def cost(machines: Cluster, mode: str, rounds: int) -> Cost:
    """Over about so many rounds, from the start of the first to the start of the last."""
    fullest = max(machines.shares) * machines.megabytes * 8 / 1000 / GIGABITS * machines.size
    until = rounds * (machines.workers[0].seconds + 2 * fullest)
    run = (
        simulate_barrier(machines, until, watched=False)
        if mode in ("barrier", EVEN)
        else simulate_cluster("bsp", machines, until, watched=False)
    )
    costs = [_cost([span for span in lane.spans if span.kind == "computing"]) for lane in run.lanes]
    totals, communications = zip(*costs, strict=True)
    return Cost(sum(totals) / len(costs), sum(communications) / len(costs))


def _cost(computed: list[Span]) -> tuple[float, float]:
    """Of one worker's rounds: seconds of each, and what of it is no computing."""
    rounds = len(computed) - 1
    total = (computed[-1].start - computed[0].start) / rounds
    return total, total - sum(span.seconds for span in computed[:-1]) / rounds


def run(quick: bool, progress: Progress) -> Result:
    wanted = [(net, workers, mode) for net in spaces() for workers in WORKERS for mode in (*MODES, EVEN)]
    cells: Cells = {}
    for done, (net, workers, mode) in enumerate(wanted):
        progress(done, len(wanted), f"{net}, {workers} workers, {mode}")
        cells[net, workers, mode] = cost(cluster(spaces()[net], workers, mode), mode, QUICKLY if quick else ROUNDS)
    return result(cells)


def result(cells: Cells) -> Result:
    rows = []
    for net in ("ResNet-56", "AlexNet"):
        for what in ("total", "communication"):
            for workers, mode in product(WORKERS, (*MODES, EVEN)):
                value: float = getattr(cells[net, workers, mode], what)
                rows.append(Row(f"{net}: seconds of a round, {what}", f"{workers} workers, {mode}", None, value, "s"))
        best = gains(cells, net)
        paper = PAPER if net == "ResNet-56" else {}
        rows += [
            Row(f"{net}: the most over 8 to 32 workers", name, paper.get(name), value, unit)
            for name, (value, unit) in best.items()
        ]
    loads = {net: by_key(space, range(SERVERS)).loads() for net, space in spaces().items()}
    fullest = ", ".join(f"{net} {max(load.values()) * SERVERS / sum(load.values()):.2f}" for net, load in loads.items())
    note = f"by key, the fullest server holds this many times the mean: {fullest}"
    return Result(rows, _claims(cells), [note])


def gains(cells: Cells, net: str) -> dict[str, tuple[float, str]]:
    """The largest over the numbers of workers, as the paper has them: 'up to'."""

    def most(slow: str, fast: str) -> float:
        return max(cells[net, n, slow].total / cells[net, n, fast].total for n in WORKERS)

    def less(slow: str, fast: str) -> float:
        return max(100 * (1 - cells[net, n, fast].communication / cells[net, n, slow].communication) for n in WORKERS)

    pairs = (MODES[:2], MODES[1:], (MODES[0], MODES[2]))
    values = [*((most(*pair), "x") for pair in pairs), *((less(*pair), "%") for pair in pairs)]
    return dict(zip(PAPER, values, strict=True))


def _claims(cells: Cells) -> list[Claim]:
    deep, wide = gains(cells, "ResNet-56"), gains(cells, "AlexNet")
    overlap, slicing, both, less, _, less_both = PAPER
    even = max(
        100 * (1 - cells["ResNet-56", n, "elastic"].communication / cells["ResNet-56", n, EVEN].communication)
        for n in WORKERS
    )
    shares = {
        f"{n} workers": 100 * cells["ResNet-56", n, "barrier"].communication / cells["ResNet-56", n, "barrier"].total
        for n in WORKERS
    }
    return [
        verdicts.ascending(
            "with a barrier, communication dominates the more workers there are",
            shares,
            unit="%",
            why="of a round of ResNet-56; each computes less, and every server has more to receive and to send",
        ),
        verdicts.near(
            "ResNet-56: overlap is up to 4.26 times as fast as a barrier",
            deep[overlap][0],
            4.26,
            neutral=SAME,
            unit="x",
            why="the fullest server receives all its gradients and then sends all its parameters, with or without a "
            f"barrier, so that overlap saves {deep[less][0]:.1f} % of communication; where servers are sliced "
            f"evenly it saves {even:.0f} %. What PS-Lite's scheduler itself costs is not in this cluster",
        ),
        verdicts.near(
            "ResNet-56: elastic slicing makes it up to 1.42 times as fast again",
            deep[slicing][0],
            1.42,
            neutral=1,
            unit="x",
            why=f"AlexNet, whose tensors are more uneven: {wide[slicing][0]:.2f}x",
        ),
        verdicts.near(
            "ResNet-56: both together are up to 6 times as fast as a barrier",
            deep[both][0],
            6,
            neutral=1,
            unit="x",
            why=f"AlexNet: {wide[both][0]:.2f}x",
        ),
        verdicts.near(
            "both together cut communication by 93.7 %",
            deep[less_both][0],
            93.7,
            neutral=0,
            unit="%",
            why=f"nearly all of it by even slicing, which the fullest server's load bounds; AlexNet: "
            f"{wide[less_both][0]:.1f} %",
        ),
    ]


def draw(found: Result) -> Figure:
    figure, axes = picture.sheet("FluentPS, figure 6: a round over 8 servers, BSP", 3, width=14, height=4.8)
    for plot, net in zip(axes, ("ResNet-56", "AlexNet"), strict=False):
        series = {
            mode: [found.ours(f"{net}: seconds of a round, total", f"{workers} workers, {mode}") for workers in WORKERS]
            for mode in MODES
        }
        picture.bars(plot, [str(workers) for workers in WORKERS], dict(series), unit="seconds of a round")
        for place, workers in enumerate(WORKERS):
            label = "" if place else "computing"
            plot.hlines(COMPUTING / workers, place - 0.4, place + 0.4, colors="black", label=label)
        plot.legend(frameon=False, fontsize=9)
        plot.set_xlabel("workers")
        plot.set_title(f"ours, {net}", fontsize=11)
    rows = [row for row in found.of("ResNet-56: the most over 8 to 32 workers") if row.unit == "x"]
    series = {"paper": [row.paper or 0.0 for row in rows], "ours": [row.ours or 0.0 for row in rows]}
    picture.bars(
        axes[2], ["overlap\nover barrier", "elastic\nover overlap", "elastic\nover barrier"], series, unit="times"
    )
    axes[2].set_title("the most, ResNet-56", fontsize=11)
    return figure


TARGET = Target(
    name="fluentps-fig6",
    paper="FluentPS, figure 6",
    shows="a round of BSP with a barrier, with overlap, and with elastic slicing",
    takes="some seconds",
    assumed=(
        "8 servers, and 8, 16 or 32 workers with a batch of 4096 between them (section IV-B)",
        f"25 Gbit/s in all over 32 machines (section IV-A): {GIGABITS:.2f} Gbit/s for each, worker or server, "
        "each way; 0.1 ms latency; updates take no time",
        f"each iteration up to {100 * JITTER:.0f} % off; computing divides evenly among workers",
        "ResNet-56 as the paper, and AlexNet for ImageNet, of whose elements one tensor has 62 %",
    ),
    calibrated="an iteration's computing, on ResNet-56's 37.94 s per 100 iterations under ASP with 32 workers "
    "(table IV)",
    cluster=cluster(spaces()["ResNet-56"], 32, "barrier"),
    run=run,
    draw=draw,
)
