"""PSP-SGD's table 1, its last row: what partial pushing and pulling cost in accuracy."""

from __future__ import annotations

from matplotlib.figure import Figure

from paceline.reproduce import curves, verdicts
from paceline.reproduce.psp_table1 import COLUMNS, cluster, seconds
from paceline.reproduce.race import Lesson, Racer, noise, race
from paceline.reproduce.target import Progress, Result, Target

ERRORS = {"sync": 0.1479, "c=28": 0.1609, "c=28, b=90 %": 0.1565, "c=20, b=75 %": 0.2914}
MODELS = {name: f"psp(c={c}, b={b})" for name, (c, b) in COLUMNS.items()}
SECONDS = 10.0  # of an iteration, as it was found there
RATES = (0.2, 0.4, 0.8)
SEEDS = 3
QUICK, FULL = ("Fashion-MNIST", 0.75, 300), ("CIFAR-10", 0.55, 900)  # the data, an accuracy, and rounds
TIMED = 20  # rounds, to see how long one takes


def lessons(quick: bool) -> dict[str, Lesson]:
    net, batch = ("lenet", 16) if quick else ("alexnet", 160)
    data, _, rounds = QUICK if quick else FULL
    found = {}
    for name, model in MODELS.items():
        until = rounds * seconds(cluster(SECONDS), name, TIMED)
        found[name] = Lesson(model, cluster(SECONDS), until, until / 24, net=net, data=data, batch=batch)
    return found


def run(quick: bool, progress: Progress) -> Result:
    data, accuracy, _ = QUICK if quick else FULL
    found = race(lessons(quick), rates=RATES, seeds=SEEDS, leader="sync", progress=progress)
    return result(data, accuracy, found)


def result(data: str, accuracy: float, found: dict[str, Racer]) -> Result:
    sync, mild, hard = (found[name] for name in ("sync", "c=28, b=90 %", "c=20, b=75 %"))
    within = noise(found.values())
    claims = [
        verdicts.at_least(
            "c=28, b=90 % keeps the accuracy of synchronous SGD",
            mild.final() - sync.final(),
            -within,
            neutral=-2 * within,
            why=f"{mild.final():.4f} against {sync.final():.4f}; {within:.4f} less is taken for the same, since seeds "
            "differ as much",
        ),
        verdicts.at_most(
            "c=20, b=75 % loses accuracy",
            hard.final() - sync.final(),
            -within,
            neutral=0,
            why=f"{hard.final():.4f} against {sync.final():.4f} after as many rounds; the paper loses 14 points",
        ),
    ]
    note = f"learning rate, the best of {RATES} for sync with other seeds, and scaled with the gradients: {sync.rate:g}"
    paper = {name: 1 - error for name, error in ERRORS.items()}
    return Result(curves.rows(data, found, accuracy, paper), claims, [note], curves.curves(data, found))


def draw(found: Result) -> Figure:
    accuracy = next(accuracy for data, accuracy, _ in (QUICK, FULL) if data == found.curves[0].panel)
    return curves.draw("PSP-SGD, table 1: 32 workers, 32 servers with late answers", found, accuracy)


TARGET = Target(
    name="psp-accuracy",
    paper="PSP-SGD, table 1, validation error",
    shows="what partial pushing and pulling cost in accuracy",
    takes="minutes with --quick, else hours without a GPU",
    assumed=(
        f"the cluster of psp-table1, {SECONDS:g} s an iteration",
        "with --quick a small network on Fashion-MNIST in batches of 16, else AlexNet downsized on CIFAR-10 in 160; "
        "the paper has ResNet-50 on CIFAR-10",
        f"{QUICK[2]} rounds of each with --quick, else {FULL[2]}; the paper has 90 epochs, momentum and weight decay",
    ),
    calibrated="nothing",
    cluster=cluster(SECONDS),
    run=run,
    draw=draw,
    learns=True,
)
