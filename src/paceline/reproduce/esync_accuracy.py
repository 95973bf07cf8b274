"""ESync's figure 3: accuracy over time on Fashion-MNIST, i.i.d. and not, beside SSGD and ASGD."""

from __future__ import annotations

from matplotlib.figure import Figure

from paceline.reproduce import curves, verdicts
from paceline.reproduce.race import Lesson, Racer, noise, race
from paceline.reproduce.target import Claim, Progress, Result, Target
from paceline.sim.cluster import Cluster, Group

FAST, SLOW = 0.03, 3.5  # seconds for a batch, section 4.1
JITTER = 0.05
ACCURACY = 0.80  # to which the paper takes the time, section 5
SPEEDUP = 7.0  # the paper's, of ResNet-18
RATES = (0.05, 0.1, 0.2, 0.4)
SEEDS = 3
PANELS: dict[str, float | None] = {"i.i.d.": None, "Dirichlet(0.1)": 0.1}
# Virtual seconds, and how many times the accuracy is measured. ESync has to show what it can in a seventh of SSGD's,
# and ASGD, whose workers compute as much in a second, has as long as ESync.
UNTIL = {"SSGD": 2800.0, "ASGD": 400.0, "ESync": 400.0}
POINTS = {"SSGD": 40, "ASGD": 114, "ESync": 114}
QUICKLY = 0.4  # of that time with --quick, for all but SSGD
MODELS = {"SSGD": "bsp", "ASGD": "asp", "ESync": "esync"}


def cluster() -> Cluster:
    groups = (Group(seconds=FAST, count=4, jitter=JITTER), Group(seconds=SLOW, count=2, jitter=JITTER))
    return Cluster(workers=groups)


def lessons(alpha: float | None, *, quick: bool) -> dict[str, Lesson]:
    net, batch = ("lenet", 32) if quick else ("cnn", 64)
    found = {}
    for name, model in MODELS.items():
        every, part = UNTIL[name] / POINTS[name], QUICKLY if quick and name != "SSGD" else 1.0
        found[name] = Lesson(model, cluster(), UNTIL[name] * part, every, net=net, batch=batch, alpha=alpha)
    return found


def run(quick: bool, progress: Progress) -> Result:
    found = {}
    for number, (panel, alpha) in enumerate(PANELS.items()):

        def told(done: int, total: int, what: str, number: int = number, panel: str = panel) -> None:
            progress(number * total + done, len(PANELS) * total, f"{panel}: {what}")

        found[panel] = race(lessons(alpha, quick=quick), rates=RATES, seeds=SEEDS, accuracy=ACCURACY, progress=told)
    return result(found)


def result(found: dict[str, dict[str, Racer]]) -> Result:
    rows, drawn, claims, notes = [], [], [], []
    for panel, racers in found.items():
        rows += curves.rows(panel, racers, ACCURACY)
        drawn += curves.curves(panel, racers)
        claims += _claims(panel, racers)
        notes.append(f"{panel}: learning rates, each the best of {RATES} with other seeds: {curves.told(racers)}")
    return Result(rows, claims, notes, drawn)


def _claims(panel: str, racers: dict[str, Racer]) -> list[Claim]:
    ssgd, asgd, esync = (racers[name] for name in MODELS)
    within = noise([ssgd, esync])
    said = "is no better than ESync's" if panel == "i.i.d." else "is impaired"
    return [
        verdicts.at_least(
            f"{panel}: ESync reaches {ACCURACY:g} in a seventh of SSGD's time",
            ssgd.time(ACCURACY) / esync.time(ACCURACY),
            SPEEDUP,
            neutral=1,
            unit="x",
            why=f"{esync.time(ACCURACY):.3g} s against {ssgd.time(ACCURACY):.4g} s, medians of {len(esync.runs)} seeds",
        ),
        verdicts.at_least(
            f"{panel}: ESync's final accuracy is not below SSGD's",
            esync.final() - ssgd.final(),
            -within,
            neutral=-2 * within,
            why=f"{esync.final():.4f} against {ssgd.final():.4f}; {within:.4f} less is taken for the same, since seeds "
            "differ as much",
        ),
        verdicts.at_most(
            f"{panel}: ASGD's accuracy {said}",
            asgd.final() - esync.final(),
            -within if panel != "i.i.d." else within,
            neutral=0 if panel != "i.i.d." else 2 * within,
            why=f"{asgd.final():.4f} after {asgd.runs[0].curve[-1].seconds:.0f} virtual s against ESync's "
            f"{esync.final():.4f} after {esync.runs[0].curve[-1].seconds:.0f}",
        ),
    ]


def draw(found: Result) -> Figure:
    return curves.draw("ESync, figure 3: four fast workers, two slow ones", found, ACCURACY, logarithmic=True)


TARGET = Target(
    name="esync-accuracy",
    paper="ESync, figure 3",
    shows="accuracy over time on Fashion-MNIST, i.i.d. and Dirichlet(0.1)",
    takes="minutes with --quick, else hours without a GPU",
    assumed=(
        f"{FAST} s a batch on four workers, {SLOW} s on two, up to {JITTER:.0%} more or less; messages take no time",
        "with --quick a small convolutional network and batches of 32, else a larger one and the paper's 64",
        "plain SGD as in the paper, with a rate for each method from the same grid",
        "batch normalization keeps its means on each worker, so ResNet-18 is not among the networks here",
    ),
    calibrated="nothing",
    cluster=cluster(),
    run=run,
    draw=draw,
    learns=True,
)
