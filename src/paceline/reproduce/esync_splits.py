"""ESync where data is very uneven, split by split: who has which classes decides how soon it is as good as SSGD.

The paper trains on one such split. What only slow machines have comes at the pace of their iterations, whatever the
others do in between; so there are several splits here, and beside the paper's rule what one could do about it: a higher
global rate, and momentum outside.
"""

from __future__ import annotations

from math import inf, isfinite
from statistics import median

import msgspec
from matplotlib.figure import Figure

from paceline.reproduce import picture, verdicts
from paceline.reproduce.esync_accuracy import ACCURACY, FAST, SLOW, SPEEDUP, cluster
from paceline.reproduce.race import Key, Lesson, learnt
from paceline.reproduce.target import Claim, Progress, Result, Row, Target

SPLITS = range(31, 39)  # seeds: of who has which classes, the first parameters and the order of the samples
ALPHA = 0.1
BATCH, CLIP = 64, 1.0
RATE = 0.8
UNTIL = {"bsp": 900.0, "esync": 90.0}  # virtual seconds, of which a round takes 3.5
EVERY = {"bsp": 2 * SLOW, "esync": SLOW}  # so many seconds the accuracy is measured
WITHOUT, WITH = "ESync", "ESync, momentum 0.8"
MEDIAN = "median"
TICKS = (10, 20, 50, 100, 200, 500, 1000)
# The model, and the rate and the momentum of SSGD, or of local iterations.
METHODS: dict[str, tuple[str, float, float]] = {
    "SSGD": ("bsp", RATE, 0.0),
    "SSGD, momentum 0.8": ("bsp", RATE / 2, 0.8),
    WITHOUT: ("esync", RATE, 0.0),
    "ESync, rate 1.5": ("esync(rate=1.5)", RATE, 0.0),
    "ESync, momentum 0.5": ("esync(momentum=0.5)", RATE, 0.0),
    WITH: ("esync(momentum=0.8)", RATE, 0.0),
    "ESync, momentum 0.9": ("esync(momentum=0.9)", RATE, 0.0),
    "ESync, rate 0.7, momentum 0.9": ("esync(rate=0.7, momentum=0.9)", RATE, 0.0),
}
Times = dict[str, list[float]]  # to the accuracy, by method, for each split; infinity if it never was so good


def lessons(quick: bool) -> dict[Key, Lesson]:
    found = {}
    for name, (sync, rate, momentum) in METHODS.items():
        kind = "bsp" if sync == "bsp" else "esync"
        lesson = Lesson(
            sync,
            cluster(),
            UNTIL[kind],
            EVERY[kind],
            net="lenet" if quick else "cnn",
            batch=BATCH,
            alpha=ALPHA,
            rate=rate,
            momentum=momentum,
            clip=CLIP,
            enough=ACCURACY,
        )
        found.update({(name, rate, seed): msgspec.structs.replace(lesson, seed=seed) for seed in SPLITS})
    return found


def run(quick: bool, progress: Progress) -> Result:
    given = lessons(quick)
    runs = dict(learnt(given, 0, len(given), progress))
    times: Times = {name: [] for name in METHODS}
    for name, rate, seed in given:
        time = runs[name, rate, seed].time_to(ACCURACY)
        times[name].append(inf if time is None else time)
    return result(times)


def result(times: Times) -> Result:
    rows = [
        Row(name, cell, None, time if isfinite(time) else None, "s")
        for name, all_ in times.items()
        for cell, time in [*zip(map(_split, SPLITS), all_, strict=True), (MEDIAN, median(all_))]
    ]
    claims = [claim for name in (WITHOUT, WITH) for claim in _over_ssgd(name, times)]
    before, after = (median(times[name]) for name in (WITHOUT, WITH))
    claims.append(
        verdicts.at_least(
            f"{WITH}: less time than without it, by the median of the splits",
            _speedup(before, after),
            1.1,
            neutral=1,
            unit="x",
            why=f"{after:.3g} s against {before:.3g} s",
        )
    )
    soonest = min((name for name in METHODS if "ESync" in name), key=lambda name: median(times[name]))
    return Result(
        rows, claims, [f"the soonest by the median of the splits: {soonest}", "0x and – are never, by the end"]
    )


def _over_ssgd(name: str, times: Times) -> list[Claim]:
    pairs = zip(SPLITS, times["SSGD"], times[name], strict=True)
    faster = {_split(seed): _speedup(base, time) for seed, base, time in pairs}
    said = f"{name}: {ACCURACY:g} in a seventh of SSGD's time"
    return [
        verdicts.at_least(
            f"{said}, by the median of the splits",
            median(faster.values()),
            SPEEDUP,
            neutral=1,
            unit="x",
            why=f"{median(times[name]):.3g} s against {median(times['SSGD']):.4g} s, medians of {len(faster)} splits",
        ),
        verdicts.everywhere(f"{said}, whoever has which classes", faster, SPEEDUP, unit="x", why="split by split"),
    ]


def _speedup(before: float, after: float) -> float:
    """How many times as fast; none if it never was so good."""
    return before / after if isfinite(after) else 0.0


def _split(seed: int) -> str:
    return f"split {seed}"


def draw(found: Result) -> Figure:
    """A point for each split that was ever so good, and a line for the median of all."""
    title = f"ESync with Dirichlet({ALPHA:g}): virtual seconds to {ACCURACY:g}, split by split"
    figure, (plot,) = picture.sheet(title, width=11.0)
    names = found.groups()
    for place, name in enumerate(names):
        seconds = {row.cell: row.ours for row in found.of(name)}
        middle = seconds.pop(MEDIAN)
        splits = [one for one in seconds.values() if one is not None]
        if len(splits) < len(seconds):
            never = f"{len(seconds) - len(splits)} of {len(seconds)}\nnever"
            plot.text(place, 1.0, never, fontsize=8, ha="center", va="top", transform=plot.get_xaxis_transform())
        spread = [place + 0.05 * (number - (len(splits) - 1) / 2) for number in range(len(splits))]
        plot.scatter(spread, splits, color=picture.OURS, zorder=2)
        if middle is not None:
            plot.hlines(middle, place - 0.3, place + 0.3, color="black", linewidth=1.2)
            plot.annotate(picture.short(middle), (place + 0.32, middle), fontsize=8, va="center")
    plot.set_yscale("log")
    plot.set_yticks(TICKS, map(str, TICKS))
    plot.set_ylim(top=2 * TICKS[-1])  # room for how many never were
    plot.minorticks_off()
    plot.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    plot.set_ylabel("virtual seconds")
    return figure


TARGET = Target(
    name="esync-splits",
    paper="ESync, section 5, in kind",
    shows=f"time to {ACCURACY:g} on eight splits of Fashion-MNIST by Dirichlet({ALPHA:g}), with momentum outside",
    takes="minutes with --quick, else hours without a GPU",
    assumed=(
        f"{FAST} s a batch on four workers, {SLOW} s on two, a little more or less; messages take no time",
        f"batches of {BATCH}, gradients clipped to a length of {CLIP:g}; a rate of {RATE:g}, and for SSGD with "
        f"momentum {RATE / 2:g}; with --quick a small convolutional network, else a larger one",
        f"the accuracy is measured every {EVERY['esync']} s under ESync and every {EVERY['bsp']:g} under SSGD: about "
        "one round, and two",
    ),
    calibrated="nothing",
    cluster=cluster(),
    run=run,
    draw=draw,
    learns=True,
)
