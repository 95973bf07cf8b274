"""ElasticBSP's figure 4, its accuracy: who learns faster, and who learns more."""

from __future__ import annotations

from matplotlib.figure import Figure

from paceline.reproduce import curves, verdicts
from paceline.reproduce.elasticbsp_fig4 import NETS, cluster
from paceline.reproduce.race import Lesson, Racer, race
from paceline.reproduce.target import Progress, Result, Target

MODELS = {"BSP": "bsp", "ASP": "asp", "SSP": "ssp(s=3)", "R=15": "elastic_bsp(R=15)", "R=30": "elastic_bsp(R=30)"}
ELASTIC = ("R=15", "R=30")
RATES = (0.1, 0.2, 0.4)
SEEDS = 3
QUICK, FULL = ("Fashion-MNIST", 0.82), ("CIFAR-10", 0.65)  # the data, and the accuracy to which the time is taken
UNTIL, EVERY = {True: 20.0, False: 240.0}, {True: 0.4, False: 3.0}  # virtual seconds, quick or not


def lessons(quick: bool) -> dict[str, Lesson]:
    net, batch = ("lenet", 32) if quick else ("alexnet", 128)
    data, _ = QUICK if quick else FULL
    machines = cluster(NETS["AlexNet"])
    return {
        name: Lesson(model, machines, UNTIL[quick], EVERY[quick], net=net, data=data, batch=batch)
        for name, model in MODELS.items()
    }


def run(quick: bool, progress: Progress) -> Result:
    data, accuracy = QUICK if quick else FULL
    found = race(lessons(quick), rates=RATES, seeds=SEEDS, accuracy=accuracy, progress=progress)
    return result(data, accuracy, found)


def result(data: str, accuracy: float, found: dict[str, Racer]) -> Result:
    bsp = found["BSP"]
    noise = max(racer.spread() for racer in found.values())
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
            -noise,
            neutral=-2 * noise,
            why=f"BSP has {bsp.final():.4f}, "
            + ", ".join(f"{name} {found[name].final():.4f}" for name in ELASTIC)
            + f"; seeds lie up to {noise:.4f} apart, and so much less is taken for the same",
        ),
        verdicts.at_least(
            "BSP reaches a higher accuracy than ASP and SSP",
            bsp.final() - max(found[name].final() for name in ("ASP", "SSP")),
            noise,
            neutral=0,
            why=f"BSP has {bsp.final():.4f}, ASP {found['ASP'].final():.4f}, SSP {found['SSP'].final():.4f}, at the "
            "same virtual time, in which BSP has had the fewest gradients",
        ),
    ]
    note = f"learning rates, each the best of {RATES} with another seed: {curves.told(found)}"
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
        "the four workers and the network of elasticbsp-fig4's AlexNet",
        "with --quick a small network on Fashion-MNIST in batches of 32, else AlexNet downsized on CIFAR-10 in 128",
        "plain SGD with a rate for each model from the same grid; the paper has 0.001 and weight decay, for 400 epochs",
    ),
    calibrated="nothing",
    cluster=cluster(NETS["AlexNet"]),
    run=run,
    draw=draw,
    learns=True,
)
