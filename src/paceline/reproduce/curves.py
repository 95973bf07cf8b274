"""What targets that learn have in common: their rows, and their figure of accuracies over time."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paceline.reproduce import picture
from paceline.reproduce.race import Racer
from paceline.reproduce.target import Curve, Result, Row

Racers = Mapping[str, Racer]


def rows(panel: str, racers: Racers, accuracy: float, paper: Mapping[str, float] | None = None) -> list[Row]:
    """When each model was so good, how good it was in the end, and how far its seeds lie apart in that."""
    found = []
    for name, racer in racers.items():
        time = racer.time(accuracy)
        found.append(Row(f"{panel}: time to {accuracy:g}", name, None, time if isfinite(time) else None, "s"))
    for name, racer in racers.items():
        found.append(Row(f"{panel}: final accuracy", name, (paper or {}).get(name), racer.final(), ""))
    for name, racer in racers.items():
        found.append(Row(f"{panel}: its spread", name, None, racer.spread(), ""))
    return found


def curves(panel: str, racers: Racers) -> list[Curve]:
    return [
        Curve(panel, name, [point.seconds for point in run.curve], [point.accuracy for point in run.curve])
        for name, racer in racers.items()
        for run in racer.runs
    ]


def told(racers: Racers) -> str:
    """With which rate each model learns."""
    return ", ".join(f"{name} {racer.rate:g}" for name, racer in racers.items())


def draw(title: str, found: Result, accuracy: float, *, logarithmic: bool = False) -> Figure:
    """A panel for each distribution of the data, a colour for each model: thin lines for seeds, a thick one for all."""
    panels = list(dict.fromkeys(curve.panel for curve in found.curves))
    figure, axes = picture.sheet(title, len(panels), width=6.5 * len(panels), height=4.8)
    for plot, panel in zip(axes, panels, strict=True):
        _panel(plot, [curve for curve in found.curves if curve.panel == panel])
        plot.axhline(accuracy, color="black", linewidth=0.8, linestyle="dotted")
        if logarithmic:
            plot.set_xscale("log")
        plot.set_title(panel, fontsize=11)
        plot.set_xlabel("virtual seconds")
    axes[0].set_ylabel("test accuracy")
    return figure


def _panel(plot: Axes, drawn: list[Curve]) -> None:
    names = list(dict.fromkeys(curve.name for curve in drawn))
    for name, colour in zip(names, picture.LINES, strict=False):
        mine = [curve for curve in drawn if curve.name == name]
        for curve in mine:
            plot.plot(curve.seconds[1:], curve.accuracies[1:], color=colour, linewidth=0.6, alpha=0.35)
        points = range(1, min(len(curve.seconds) for curve in mine))
        means = [fmean(curve.accuracies[point] for curve in mine) for point in points]
        plot.plot([mine[0].seconds[point] for point in points], means, color=colour, linewidth=1.8, label=name)
    plot.legend(frameon=False, fontsize=9, loc="lower right")
