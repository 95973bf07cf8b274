"""DC-ASGD beside ASGD: what correcting late gradients is worth, in time and in accuracy."""

from __future__ import annotations

from matplotlib.figure import Figure

from paceline.reproduce import curves, verdicts
from paceline.reproduce.race import Lesson, Racer, noise, race
from paceline.reproduce.target import Progress, Result, Target
from paceline.sim.cluster import Cluster, Group

MODELS = {"ASGD": "asp", "DC-ASGD-c": "dc_asgd", "DC-ASGD-a": "dc_asgd(kind=adaptive)"}
CORRECTED = ("DC-ASGD-c", "DC-ASGD-a")  # as the paper calls them: constant and adaptive
RATES = (0.2, 0.4, 0.8)
SEEDS = 5
QUICK, FULL = ("Fashion-MNIST", 0.80), ("CIFAR-10", 0.65)  # the data, and the accuracy to which the time is taken
UNTIL, EVERY = {True: 300.0, False: 6000.0}, {True: 12.0, False: 60.0}  # virtual seconds, quick or not
FAST, SLOW = 1.0, 4.0  # seconds for a batch
JITTER = 0.05


def cluster() -> Cluster:
    groups = (Group(seconds=FAST, count=6, jitter=JITTER), Group(seconds=SLOW, count=2, jitter=JITTER))
    return Cluster(workers=groups)


def lessons(quick: bool) -> dict[str, Lesson]:
    net, batch = ("lenet", 32) if quick else ("alexnet", 128)
    data, _ = QUICK if quick else FULL
    return {
        name: Lesson(model, cluster(), UNTIL[quick], EVERY[quick], net=net, data=data, batch=batch)
        for name, model in MODELS.items()
    }


def run(quick: bool, progress: Progress) -> Result:
    data, accuracy = QUICK if quick else FULL
    found = race(lessons(quick), rates=RATES, seeds=SEEDS, accuracy=accuracy, progress=progress)
    return result(data, accuracy, found)


def result(data: str, accuracy: float, found: dict[str, Racer]) -> Result:
    asgd, within = found["ASGD"], noise(found.values())
    worse = min(found[name].final() for name in CORRECTED) - asgd.final()
    finals = ", ".join(f"{name} {racer.final():.4f}" for name, racer in found.items())
    claims = [
        verdicts.everywhere(
            f"DC-ASGD reaches {accuracy:g} sooner than ASGD",
            {name: asgd.time(accuracy) / found[name].time(accuracy) for name in CORRECTED},
            1,
            unit="x",
            why=f"times as fast; ASGD takes {asgd.time(accuracy):.3g} virtual s, medians of {len(asgd.runs)} seeds",
        ),
        verdicts.at_least(
            "DC-ASGD's final accuracy is not below ASGD's",
            worse,
            -within,
            neutral=-2 * within,
            why=f"{finals}; {within:.4f} less is taken for the same, since seeds differ as much",
        ),
        verdicts.at_least(
            "DC-ASGD reaches a higher accuracy than ASGD",
            worse,
            within,
            neutral=0,
            why=f"{finals}; {within:.4f} is how far seeds lie apart",
        ),
    ]
    note = f"learning rates, each the best of {RATES} with other seeds: {curves.told(found)}"
    return Result(curves.rows(data, found, accuracy), claims, [note], curves.curves(data, found))


def draw(found: Result) -> Figure:
    accuracy = next(accuracy for data, accuracy in (QUICK, FULL) if data == found.curves[0].panel)
    return curves.draw("DC-ASGD: six fast workers, two slow ones", found, accuracy)


TARGET = Target(
    name="dc-asgd-accuracy",
    paper="DC-ASGD (Zheng et al. 2017), in kind",
    shows="accuracy over time of ASGD, and of DC-ASGD with constant and adaptive lambda",
    takes="minutes with --quick, else hours without a GPU",
    assumed=(
        f"six workers that take {FAST:g} s an iteration and two that take {SLOW:g}, up to {JITTER:.0%} more or less;"
        " messages take no time",
        "with --quick a small network on Fashion-MNIST in batches of 32, else AlexNet downsized on CIFAR-10 in 128",
        "the paper's lambdas, and plain SGD with a rate for each from the same grid; the paper trains for far longer",
    ),
    calibrated="nothing",
    cluster=cluster(),
    run=run,
    draw=draw,
    learns=True,
)
