"""ESync's figures 4 and 5: samples and bytes per second beside SSGD and ASGD, and how long workers are blocked."""

from __future__ import annotations

from matplotlib.figure import Figure
from msgspec import Struct

from paceline.reproduce import picture, verdicts
from paceline.reproduce.target import Claim, Progress, Result, Row, Target
from paceline.sim.cluster import Cluster, Group, Network
from paceline.sim.record import Timeline
from paceline.sim.timeline import simulate_cluster

FAST, SLOW = 0.03, 3.5  # seconds for a batch, section 4.1
BATCH = 64
MEGABYTES = 45.0  # ResNet-18
MODELS = {"SSGD": "bsp", "ASGD": "asp", "ESync": "esync"}
SECONDS, QUICKLY = 1800.0, 100.0


class Speed(Struct, frozen=True):
    """Per second of all workers together, and which share of its time a fast and a slow worker computed."""

    samples: float
    megabytes: float
    fast: float
    slow: float


def cluster(network: Network | None = None) -> Cluster:
    workers = (Group(seconds=FAST, count=1), Group(seconds=SLOW, count=2))
    return Cluster(workers=workers, network=network or Network(gigabits=1.0, latency=0.0001), megabytes=MEGABYTES)


def run(quick: bool, progress: Progress) -> Result:
    seconds = QUICKLY if quick else SECONDS
    speeds, timelines = {}, {}
    for done, (name, model) in enumerate(MODELS.items()):
        progress(done, len(MODELS) + 1, model)
        timelines[name] = simulate_cluster(model, cluster(), seconds, watched=False)
        speeds[name] = speed(timelines[name], local=name == "ESync")
    progress(len(MODELS), len(MODELS) + 1, "esync, with a network that takes no time")
    free = simulate_cluster("esync", cluster(Network()), seconds, watched=False)
    fastest = blocking(timelines["ESync"])[0]
    return result(speeds, fastest, [wait for waits in blocking(free) for wait in waits])


def speed(timeline: Timeline, *, local: bool) -> Speed:
    """What travels for an iteration, or with `local` ones for a round, is a push and a pull of all parameters."""
    trips = timeline.rounds * len(timeline.lanes) if local else timeline.iterations
    shares = [lane.computing for lane in timeline.lanes]
    return Speed(
        samples=BATCH * timeline.iterations / timeline.seconds,
        megabytes=2 * MEGABYTES * trips / timeline.seconds,
        fast=shares[0],
        slow=sum(shares[1:]) / len(shares[1:]),
    )


def blocking(timeline: Timeline) -> list[list[float]]:
    """For each worker and round, how long it had been ready when the last one was.

    Not the first round, in which nobody's pace is known yet, so that all do one iteration.
    """
    ready = [
        {span.iteration: span.end for span in lane.spans if span.kind == "computing"} for lane in timeline.lanes
    ]  # the last local iteration of a round is the one that stays
    rounds = range(1, timeline.rounds)
    last = {number: max(lane[number] for lane in ready) for number in rounds}
    return [[last[number] - lane[number] for number in rounds] for lane in ready]


def result(speeds: dict[str, Speed], fastest: list[float], everyone: list[float]) -> Result:
    esync, asgd, ssgd = speeds["ESync"], speeds["ASGD"], speeds["SSGD"]
    over_ssgd, over_asgd = esync.samples / ssgd.samples, esync.samples / asgd.samples
    traffic, most, mean = esync.megabytes / asgd.megabytes, max(fastest), sum(fastest) / len(fastest)
    rows = [Row("samples per second", name, None, one.samples, "samples/s") for name, one in speeds.items()]
    rows += [Row("bytes per second", name, None, one.megabytes, "MB/s") for name, one in speeds.items()]
    rows += [
        Row("ESync over", "SSGD, samples", 33, over_ssgd, "x", calibrated=True),
        Row("ESync over", "ASGD, samples", 13, over_asgd, "x", calibrated=True),
        Row("ESync over", "ASGD, bytes", 0.25, traffic, "x"),
    ]
    for name, one in speeds.items():
        rows.append(Row("computing, of the time", f"{name}, fast worker", None, 100 * one.fast, "%"))
        rows.append(Row("computing, of the time", f"{name}, slow workers", None, 100 * one.slow, "%"))
    rows += [
        Row("blocking", "fastest worker, mean", None, mean, "s"),
        Row("blocking", "fastest worker, most", FAST, most, "s"),
        Row("blocking", "all workers, free network, most", FAST, max(everyone), "s"),
    ]
    note = "the figures' bars are not in the text of the paper; where it has no number, – stands"
    return Result(rows, _claims(speeds, mean, most, max(everyone)), [note])


def _claims(speeds: dict[str, Speed], mean: float, most: float, anyone: float) -> list[Claim]:
    esync, asgd, ssgd = speeds["ESync"], speeds["ASGD"], speeds["SSGD"]
    return [
        verdicts.at_least(
            "ESync trains 33 times SSGD's samples per second",
            esync.samples / ssgd.samples,
            25,
            neutral=1,
            unit="x",
            why="how many slow workers there are for a fast one was chosen for this; no more than "
            f"{(SLOW / FAST + 2) / 3:.0f}x is to be had with 2 for 1",
        ),
        verdicts.near(
            "ESync trains 13 times ASGD's samples per second",
            esync.samples / asgd.samples,
            13,
            neutral=1,
            unit="x",
            why=f"the network was chosen for this; ASGD's fast worker computes {100 * asgd.fast:.0f} % of its time and "
            f"waits for the network else, ESync's {100 * esync.fast:.0f} %",
        ),
        verdicts.at_most(
            "ESync sends a quarter of ASGD's bytes per second",
            esync.megabytes / asgd.megabytes,
            1 / 3,
            neutral=1,
            unit="x",
            why=f"{esync.megabytes:.0f} MB/s against {asgd.megabytes:.0f}: one push and pull for each round. The State "
            "Server's answers queue behind parameters here; if they did not, rounds would be as short as SSGD's, and "
            f"it would be {ssgd.megabytes / asgd.megabytes:.2f}x",
        ),
        verdicts.at_most(
            "the fastest worker is blocked for less than one of its iterations",
            most,
            FAST,
            neutral=SLOW,
            unit="s",
            why=f"the longest of all rounds but the first; their mean is {mean:.4f} s. In the second, slow workers "
            "begin later than the State Server thinks, because its answers queue behind parameters. On a network that "
            f"takes no time nobody is blocked for more than {anyone:.3f} s",
        ),
        verdicts.at_least(
            "ESync's fast worker computes more of its time than ASGD's and SSGD's",
            esync.fast / max(asgd.fast, ssgd.fast),
            1.0,
            neutral=1,
            unit="x",
            why=f"{100 * esync.fast:.0f} % against {100 * asgd.fast:.0f} % and {100 * ssgd.fast:.1f} %",
        ),
    ]


def draw(found: Result) -> Figure:
    figure, axes = picture.sheet("ESync, figures 4 and 5: one fast worker, two slow ones", 3, width=13, height=4.4)
    for plot, group in zip(axes, ("samples per second", "bytes per second"), strict=False):
        rows = found.of(group)
        picture.bars(plot, [row.cell for row in rows], {"ours": [row.ours for row in rows]}, unit=rows[0].unit)
        plot.set_title(group, fontsize=11)
    rows = found.of("ESync over")
    series = {"paper": [row.paper for row in rows], "ours": [row.ours for row in rows]}
    picture.bars(axes[2], [row.cell.replace(", ", "\n") for row in rows], series, unit="times")
    axes[2].set_yscale("log")
    axes[2].axhline(1, color="black", linewidth=0.8)
    axes[2].set_title("ESync over", fontsize=11)
    return figure


TARGET = Target(
    name="esync-speed",
    paper="ESync, figures 4 and 5",
    shows="samples and bytes per second beside SSGD and ASGD, and blocking",
    takes="some seconds",
    assumed=(
        "0.03 s a batch on the fast worker, 3.5 s on the slow ones, always the same (section 4.1)",
        "one server; every machine has a line of 1 Gbit/s with 0.1 ms latency; the paper says nothing of its network",
        "the State Server is on the server's machine and shares its line, on which nothing overtakes anything",
        f"ResNet-18, {MEGABYTES:.0f} MB each way; a batch has {BATCH} samples (section 5)",
    ),
    calibrated="2 slow workers for 1 fast one, on the 33x over SSGD; 1 Gbit/s and one server, on the 13x over ASGD",
    cluster=cluster(),
    run=run,
    draw=draw,
)
