"""FluentPS's figure 10: accuracy over time of PSSP beside BSP, SSP and ASP, with 64 workers."""

from __future__ import annotations

from statistics import fmean

from matplotlib.figure import Figure

from paceline.reproduce import curves, verdicts
from paceline.reproduce.fluentps import ASP_SECONDS, alexnet
from paceline.reproduce.race import Lesson, Racer, noise, race
from paceline.reproduce.target import Progress, Result, Target

MODELS = {
    "BSP": "bsp",
    "SSP s=3": "ssp(s=3)",
    "PSSP c=0.5": "pssp(s=3, c=0.5)",
    "PSSP c=0.3": "pssp(s=3, c=0.3)",
    "PSSP c=0.1": "pssp(s=3, c=0.1)",
    "ASP": "asp",
}
LEADER = "SSP s=3"  # whose rate all have
PROBABILISTIC = [name for name in MODELS if name.startswith("PSSP")]
RATES = (0.1, 0.2, 0.4)
SEEDS = 3
QUICK, FULL = ("Fashion-MNIST", 0.75, 300), ("CIFAR-10", 0.55, 600)  # the data, an accuracy, and iterations of a worker
PACE = ASP_SECONDS["AlexNet"] / 100


def lessons(quick: bool) -> dict[str, Lesson]:
    net, batch = ("lenet", 8) if quick else ("alexnet", 100)
    data, _, iterations = QUICK if quick else FULL
    until = iterations * PACE
    return {
        name: Lesson(model, alexnet(), until, until / 24, net=net, data=data, batch=batch)
        for name, model in MODELS.items()
    }


def run(quick: bool, progress: Progress) -> Result:
    data, accuracy, _ = QUICK if quick else FULL
    found = race(lessons(quick), rates=RATES, seeds=SEEDS, leader=LEADER, progress=progress)
    return result(data, accuracy, found)


def result(data: str, accuracy: float, found: dict[str, Racer]) -> Result:
    ssp, asp = found[LEADER], found["ASP"]
    within = noise(found.values())
    listed = ", ".join(f"{name} {racer.final():.4f}" for name, racer in found.items())
    claims = [
        verdicts.at_least(
            "PSSP's final accuracy is not below SSP's",
            fmean(found[name].final() for name in PROBABILISTIC) - ssp.final(),
            -within,
            neutral=-2 * within,
            why=f"the mean over its three c: {listed}; {within:.4f} less is taken for the same, since seeds differ as "
            "much",
        ),
        verdicts.at_least(
            "PSSP c=0.5 is more accurate than ASP",
            found["PSSP c=0.5"].final() - asp.final(),
            within,
            neutral=0,
            why=f"{found['PSSP c=0.5'].final():.4f} against {asp.final():.4f}, at the same virtual time",
        ),
    ]
    note = f"learning rate, the best of {RATES} for {LEADER} with other seeds: {ssp.rate:g}"
    return Result(curves.rows(data, found, accuracy), claims, [note], curves.curves(data, found))


def draw(found: Result) -> Figure:
    accuracy = next(accuracy for data, accuracy, _ in (QUICK, FULL) if data == found.curves[0].panel)
    return curves.draw("FluentPS, figure 10: 64 slightly unequal workers", found, accuracy)


TARGET = Target(
    name="fluentps-accuracy",
    paper="FluentPS, figure 10",
    shows="accuracy over time of PSSP beside BSP, SSP and ASP, with 64 workers",
    takes="minutes with --quick, else hours without a GPU",
    assumed=(
        "the 64 persistently slightly unequal workers of fluentps-table4, and one server",
        "with --quick a small network on Fashion-MNIST in batches of 8, else AlexNet downsized on CIFAR-10 in 100",
        f"{QUICK[2]} iterations of a worker with --quick, else {FULL[2]}; the paper has 4 000",
    ),
    calibrated="nothing",
    cluster=alexnet(),
    run=run,
    draw=draw,
    learns=True,
)
