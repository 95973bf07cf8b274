"""ElasticBSP's figure 4, its accuracy: who learns faster, and who learns more."""

from __future__ import annotations

from matplotlib.figure import Figure

from paceline.reproduce import curves, verdicts
from paceline.reproduce.race import Lesson, Racer, noise, race
from paceline.reproduce.target import Progress, Result, Target
from paceline.sim.cluster import Cluster, Group

MODELS = {"BSP": "bsp", "ASP": "asp", "SSP": "ssp(s=3)", "R=15": "elastic_bsp(R=15)", "R=30": "elastic_bsp(R=30)"}
ELASTIC = ("R=15", "R=30")
RATES = (0.1, 0.2, 0.4)
SEEDS = 3
QUICK, FULL = ("Fashion-MNIST", 0.80), ("CIFAR-10", 0.65)  # the data, and the accuracy to which the time is taken
UNTIL, EVERY = {True: 600.0, False: 6000.0}, {True: 12.0, False: 60.0}  # virtual seconds, quick or not
PACES = (1.0, 1.0, 1.6, 2.0)  # seconds: two machines that are new, and two that are not
JITTER = 0.05


def cluster() -> Cluster:
    return Cluster(workers=tuple(Group(seconds=pace, jitter=JITTER) for pace in PACES))


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
    bsp = found["BSP"]
    within = noise(found.values())
    claims = [
        verdicts.everywhere(
            f"ElasticBSP reaches {accuracy:g} sooner than BSP",
            {name: bsp.time(accuracy) / found[name].time(accuracy) for name in ELASTIC},
            1,
            unit="x",
            why=f"times as fast; BSP takes {bsp.time(accuracy):.3g} virtual s, medians of {len(bsp.runs)} seeds",
        ),
        verdicts.at_least(
            "ElasticBSP's final accuracy is not below BSP's",
            min(found[name].final() for name in ELASTIC) - bsp.final(),
            -within,
            neutral=-2 * within,
            why=f"BSP has {bsp.final():.4f}, "
            + ", ".join(f"{name} {found[name].final():.4f}" for name in ELASTIC)
            + f"; {within:.4f} less is taken for the same, since seeds differ as much",
        ),
        verdicts.at_least(
            "BSP reaches a higher accuracy than ASP and SSP",
            bsp.final() - max(found[name].final() for name in ("ASP", "SSP")),
            within,
            neutral=0,
            why=f"BSP has {bsp.final():.4f}, ASP {found['ASP'].final():.4f}, SSP {found['SSP'].final():.4f}, at the "
            "same virtual time, in which BSP has had the fewest gradients",
        ),
    ]
    note = f"learning rates, each the best of {RATES} with other seeds: {curves.told(found)}"
    return Result(curves.rows(data, found, accuracy), claims, [note], curves.curves(data, found))


def draw(found: Result) -> Figure:
    accuracy = next(accuracy for data, accuracy in (QUICK, FULL) if data == found.curves[0].panel)
    return curves.draw("ElasticBSP, figure 4: four uneven workers", found, accuracy)


TARGET = Target(
    name="elasticbsp-accuracy",
    paper="ElasticBSP, figure 4",
    shows="accuracy over time of BSP, ASP, SSP and ElasticBSP",
    takes="minutes with --quick, else hours without a GPU",
    assumed=(
        f"four workers that take {', '.join(map(str, PACES))} s an iteration, up to {JITTER:.0%} more or less; messages"
        " take no time",
        "the paper's workers are alike; on those of elasticbsp-fig4, which gain a tenth, seeds differ more than that",
        "with --quick a small network on Fashion-MNIST in batches of 32, else AlexNet downsized on CIFAR-10 in 128",
        "plain SGD with a rate for each model from the same grid; the paper has 0.001 and weight decay, for 400 epochs",
    ),
    calibrated="nothing",
    cluster=cluster(),
    run=run,
    draw=draw,
    learns=True,
)
