"""How figures look: paper and ours in the same two colours everywhere, which the colour-blind can tell apart too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

PAPER, OURS = "#0072B2", "#E69F00"
MORE = ("#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")  # for lines of ours, one after the other
LINES = (PAPER, OURS, *MORE)  # for models, none of which is a paper's
COLOURS = {"paper": PAPER, "ours": OURS}
DOTS_PER_INCH = 120


def sheet(title: str, columns: int = 1, *, width: float = 9.0, height: float = 4.6) -> tuple[Figure, list[Axes]]:
    """A figure with so many plots side by side."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=13)
    axes = [figure.add_subplot(1, columns, 1 + column) for column in range(columns)]
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(axis="y", alpha=0.3, linewidth=0.6)
        one.set_axisbelow(True)
    return figure, axes


def bars(
    axes: Axes, labels: Sequence[str], series: Mapping[str, Sequence[float | None]], *, unit: str, turned: bool = False
) -> None:
    """Groups of bars, one in each for every series; a figure that is not there leaves a gap.

    Where there are many, the figures above them can be `turned`.
    """
    width = 0.8 / len(series)
    extra = iter(MORE)
    for number, (name, values) in enumerate(series.items()):
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(labels))]
        known = [(place, value) for place, value in zip(places, values, strict=True) if value is not None]
        drawn = axes.bar([place for place, _ in known], [value for _, value in known], width, label=name)
        colour = COLOURS.get(name) or next(extra)
        for bar in drawn:
            bar.set_facecolor(colour)
        axes.bar_label(drawn, labels=[short(value) for _, value in known], fontsize=7, padding=2, rotation=90 * turned)
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylabel(unit)
    axes.margins(y=0.25 if turned else 0.12)
    axes.legend(frameon=False, fontsize=9)


def short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else 1e6):.3g}{letter}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS_PER_INCH)
