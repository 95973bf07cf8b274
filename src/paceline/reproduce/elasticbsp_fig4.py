"""ElasticBSP's figure 4, its time: how long the models take for the same epochs, and what R does to ElasticBSP."""

from __future__ import annotations

from matplotlib.figure import Figure
from msgspec import Struct

from paceline.bench import planners
from paceline.reproduce import picture, verdicts
from paceline.reproduce.target import Claim, Progress, Result, Row, Target
from paceline.sim.cluster import Cluster, Group, Network, Servers
from paceline.sim.timeline import simulate_cluster

HORIZONS = (15, 30, 60, 120, 240)
MODELS = {"BSP": "bsp", "ASP": "asp", "SSP": "ssp(s=3)"} | {f"R={R}": f"elastic_bsp(R={R})" for R in HORIZONS}
PACES = (1.0, 1.1, 1.2, 1.3)  # of the four workers beside each other
JITTER = 0.05
GIGABITS = 10.0
BATCH, SAMPLES = 128, 50_000
ITERATIONS, QUICKLY = 3000, 60  # of the fastest worker, to take the rate from
# In which order the models finish, section V-B; where it names no R, 15 stands for ElasticBSP.
ORDER = {"AlexNet": ("SSP", "ASP", "R=15", "BSP"), "ResNet-50": ("R=15", "BSP", "SSP", "ASP")}


class Net(Struct, frozen=True):
    seconds: float  # of the fastest worker's iteration
    megabytes: float
    update: float  # seconds to update all parameters once
    epochs: int


NETS = {"AlexNet": Net(0.02, 5.6, 0.002, 400), "ResNet-50": Net(0.2, 94.0, 0.03, 300)}


class Taken(Struct, frozen=True):
    """For all epochs; `barriers` is how many supersteps there were."""

    hours: float
    barriers: float


Cells = dict[tuple[str, str], Taken]  # by net and model


def cluster(net: Net) -> Cluster:
    return Cluster(
        workers=tuple(Group(seconds=net.seconds * pace, jitter=JITTER) for pace in PACES),
        servers=Servers(update=net.update),
        network=Network(gigabits=GIGABITS, latency=0.0001),
        megabytes=net.megabytes,
    )


def run(quick: bool, progress: Progress) -> Result:
    wanted = [(name, model) for name in NETS for model in MODELS]
    cells: Cells = {}
    for done, (name, model) in enumerate(wanted):
        progress(done, len(wanted), f"{name}, {MODELS[model]}")
        cells[name, model] = taken(NETS[name], MODELS[model], QUICKLY if quick else ITERATIONS)
    return result(cells)


def taken(net: Net, model: str, iterations: int) -> Taken:
    """At the rate of a shorter run; an epoch is 50 000 samples, whoever has trained on them."""
    timeline = simulate_cluster(model, cluster(net), iterations * net.seconds, watched=False)
    times = net.epochs * SAMPLES / BATCH / timeline.iterations  # how many times as long it takes
    return Taken(timeline.seconds * times / 3600, timeline.rounds * times)


def planning(horizon: int) -> float:
    """Seconds of a plan with the paper's ZipLine, at most: table II has 10 workers, and R=15 and R=150."""
    first, second = planners.PAPER["zipline"][10, 15], planners.PAPER["zipline"][10, 150]
    return (first + (second - first) / (150 - 15) * (horizon - 15)) / 1e6


def result(cells: Cells) -> Result:
    rows = []
    for name, order in ORDER.items():
        rows += [Row(f"{name}: hours", model, None, cells[name, model].hours, "h") for model in MODELS]
        rows += [
            Row(f"{name}: times as fast as BSP", model, None, cells[name, "BSP"].hours / cells[name, model].hours, "x")
            for model in MODELS
        ]
        ranked = sorted(order, key=lambda model: cells[name, model].hours)
        rows += [
            Row(f"{name}: who finishes first", model, 1.0 + order.index(model), 1.0 + ranked.index(model), "rank")
            for model in order
        ]
    note = (
        "the paper has no times in its text, but the order in which the models finish; accuracy is not simulated here"
    )
    return Result(rows, _claims(cells), [note])


def _claims(cells: Cells) -> list[Claim]:
    claims = []
    for name in NETS:
        faster = {f"R={R}": cells[name, "BSP"].hours / cells[name, f"R={R}"].hours for R in HORIZONS}
        claims.append(
            verdicts.everywhere(
                f"{name}: ElasticBSP takes less time than BSP to the same epochs",
                faster,
                1,
                unit="x",
                why="times as fast; workers wait for each other once in a superstep instead of at every iteration",
            )
        )
    for name, order in ORDER.items():
        line = 8 * NETS[name].megabytes * len(PACES) / GIGABITS / 1000
        claims.append(
            verdicts.ascending(
                f"{name}: {', '.join(order)} finish in this order",
                {model: cells[name, model].hours for model in order},
                unit="h",
                why=f"a push of all workers fills the server's line for {line:.3f} s, an iteration takes "
                f"{NETS[name].seconds:g} s; whoever has pushed early waits the least, so queueing evens the "
                "workers out, SSP's bound is not met, and the barriers, after which all pull at once, cost the most",
            )
        )
    short, long = cells["AlexNet", "R=15"], cells["AlexNet", "R=240"]
    planned = long.barriers * planning(240)
    claims.append(
        verdicts.at_least(
            "AlexNet: R=240 costs extra time beside R=15",
            100 * ((long.hours + planned / 3600) / (short.hours + short.barriers * planning(15) / 3600) - 1),
            1,
            neutral=0,
            unit="%",
            why=f"more time, with what plans cost by table II; {long.barriers:,.0f} plans for R=240 take "
            f"{planned:.1f} s of {3600 * long.hours:,.0f} s there, and workers wait less often",
        )
    )
    return claims


def draw(found: Result) -> Figure:
    figure, axes = picture.sheet(
        "ElasticBSP, figure 4: time to the same epochs, 4 uneven workers", 2, width=13, height=4.6
    )
    for plot, name in zip(axes, NETS, strict=True):
        rows = found.of(f"{name}: hours")
        picture.bars(plot, [row.cell for row in rows], {"ours": [row.ours for row in rows]}, unit="hours")
        plot.set_title(
            f"{name}, {NETS[name].epochs} epochs (finish in the paper: {', '.join(ORDER[name])})", fontsize=10
        )
        plot.set_xlabel("R=… is ElasticBSP")
        plot.legend().remove()
    return figure


TARGET = Target(
    name="elasticbsp-fig4",
    paper="ElasticBSP, figure 4",
    shows="time to the same epochs under BSP, ASP, SSP and ElasticBSP, R from 15 to 240",
    takes="some seconds",
    assumed=(
        f"4 workers whose paces are as {', '.join(map(str, PACES))}, each iteration up to {100 * JITTER:.0f} % "
        "off, and a server; the paper has 4 equal machines (P100) and does not say by how much they differ",
        f"{NETS['AlexNet'].seconds} s and {NETS['ResNet-50'].seconds} s an iteration; {NETS['AlexNet'].megabytes} and "
        f"{NETS['ResNet-50'].megabytes:g} MB; lines of {GIGABITS:g} Gbit/s; an update at 3 GB/s, one after the other",
        "an epoch is 50 000 samples, whoever has trained on them; batches of 128; planning takes no time but "
        "where said",
    ),
    calibrated="nothing: the text has no times",
    cluster=cluster(NETS["AlexNet"]),
    run=run,
    draw=draw,
)
