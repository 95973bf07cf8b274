"""A comparison as a picture: accuracy over time, the time to the target, and how busy each worker was."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from paceline.compare.outcome import Outcome, Standing, band
from paceline.compare.whole import Report
from paceline.reproduce.picture import DOTS_PER_INCH, LINES

POINTS = 300  # of a curve
STYLES = ("solid", "dashed", "dotted")  # for the models that colours do not suffice for
WIDTH = 12.0
ROW = 0.42  # inches for each model in the lower half


def draw(report: Report) -> Figure:
    height = ROW * len(report.models) + 1.2
    figure = Figure(figsize=(WIDTH, 4.6 + height), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subfigures(2, 1, height_ratios=[4.6, height], squeeze=False)[:, 0]
    upper.suptitle(_title(report), fontsize=12)
    looks = dict(zip((one.sync for one in report.models), cycle(_looks()), strict=False))
    _curves(upper.add_subplot(), report, looks)
    left, right = lower.subplots(1, 2, sharey=True)
    _times(left, report, looks)
    _shares(right, report.models, looks)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", alpha=0.3, linewidth=0.6)
        axes.set_axisbelow(True)
    return figure


def png(figure: Figure) -> bytes:
    out = BytesIO()
    figure.savefig(out, format="png", dpi=DOTS_PER_INCH)
    return out.getvalue()


def _looks() -> list[tuple[str, str]]:
    return [(colour, style) for style in STYLES for colour in LINES]


def _title(report: Report) -> str:
    comparison = report.comparison
    slow = f"; {', '.join(comparison.slow)}" if comparison.slow else ""
    return f"{comparison.name}, {comparison.workers} workers{slow}"


def _curves(axes: Axes, report: Report, looks: dict[str, tuple[str, str]]) -> None:
    """The median of the seeds, and a band from the least to the most."""
    for standing in report.models:
        curves = [row.curve for row in report.rows if row.sync == standing.sync and row.curve and row.error is None]
        if not curves:
            continue
        colour, style = looks[standing.sync]
        at = np.linspace(0, max(curve[-1][0] for curve in curves), POINTS)
        seen = band(curves, at.tolist())
        axes.plot(at, seen["median"], color=colour, linestyle=style, linewidth=1.8, label=standing.sync)
        if len(curves) > 1:
            axes.fill_between(at, seen["low"], seen["high"], color=colour, alpha=0.15, linewidth=0)
    target = report.comparison.target
    if target is not None:
        axes.axhline(target, color="black", linewidth=0.8, linestyle=(0, (1, 3)))
    axes.set_xlabel("seconds")
    axes.set_ylabel("accuracy")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, linewidth=0.6)
    if any(axes.get_legend_handles_labels()):
        axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _times(axes: Axes, report: Report, looks: dict[str, tuple[str, str]]) -> None:
    """A bar to the median, a line from the least to the most, and what was never reached in words."""
    models, target = report.models, report.comparison.target
    rows = {one.sync: [row for row in report.rows if row.sync == one.sync] for one in models}
    values = [_figure(one, target) for one in models]
    axes.barh(
        range(len(models)), [value or 0.0 for value in values], 0.62, color=[looks[one.sync][0] for one in models]
    )
    reach = max((value for value in values if value is not None), default=1.0)
    for place, (one, value) in enumerate(zip(models, values, strict=True)):
        seen = _seen(rows[one.sync], target)
        high = 0.0 if value is None else max([value, *seen])
        if value is not None and len(seen) > 1 and min(seen) < max(seen):
            axes.plot([min(seen), max(seen)], [place, place], color="#333333", linewidth=1.2)
        reach = max(reach, high)
        said = _said(one, value, target)
        axes.annotate(said, (high, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, reach * 1.18)
    axes.set_yticks(range(len(models)), [one.sync for one in models])
    axes.tick_params(axis="y", labelsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("accuracy in the end" if target is None else f"seconds to an accuracy of {target:.4g}")


def _figure(standing: Standing, target: float | None) -> float | None:
    return standing.accuracy.median if target is None else standing.seconds_to_target.median


def _seen(rows: Sequence[Outcome], target: float | None) -> list[float]:
    figures = [row.accuracy if target is None else row.seconds_to_target for row in rows if row.error is None]
    return [figure for figure in figures if figure is not None]


def _said(standing: Standing, value: float | None, target: float | None) -> str:
    if value is None:
        return standing.fate or "never"
    return f"{value:.3f}" if target is None else f"{value:.1f}"


def _shares(axes: Axes, models: Sequence[Standing], looks: dict[str, tuple[str, str]]) -> None:
    """A thin bar for each worker, worker 0 at the top."""
    for place, one in enumerate(models):
        thick = 0.72 / max(1, len(one.computing))
        for worker, share in enumerate(one.computing):
            at = place + (worker - (len(one.computing) - 1) / 2) * thick
            axes.barh(at, 100 * share, 0.82 * thick, color=looks[one.sync][0])
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of its time that each worker computed, worker 0 at the top")
    axes.tick_params(axis="y", length=0)
