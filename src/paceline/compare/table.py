"""A comparison as a table: once as words, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from paceline.compare.outcome import Blocking, Spread, Standing
from paceline.compare.plan import Comparison
from paceline.compare.whole import Report

NONE = "-"
WIDEST = 12
"""The longest name of a model that a column of figures has for its title."""


def heads(report: Report) -> list[str]:
    """The titles of the columns."""
    comparison = report.comparison
    target = [] if comparison.target is None else [f"seconds to {comparison.target:.4g}", f"vs {_brief(comparison)}"]
    grid = [] if comparison.grid is None else [comparison.grid.option]
    return [
        *("model", *grid, *target),
        *("accuracy", "samples/s", "MB/s", "computing", "held pulls", "stale"),
    ]


def cells(report: Report) -> list[list[str]]:
    """A row for each model."""
    return [_row(report, standing) for standing in report.models]


def table(report: Report) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in heads(report):
        left = title == "model"
        made.add_column(_two_lines(title), justify="left" if left else "right", no_wrap=not left, overflow="fold")
    for row in cells(report):
        made.add_row(*(Text(cell) for cell in row))
    return made


def legend(report: Report) -> list[str]:
    """What is to be known about the figures."""
    comparison = report.comparison
    lines = []
    if report.ended < report.planned:
        lines.append(f"Interrupted: {report.ended} of {report.planned} runs have ended.")
        short = [one for one in report.models if 0 < one.runs < comparison.seeds]
        lines += [f"{one.sync}: {one.runs} of {comparison.seeds} seeds" for one in short]
    if comparison.seeds > 1:
        lines.append(f"Medians of {comparison.seeds} seeds; in brackets the least and the most, after ± half of that.")
    lines.append("computing: the share of their time that workers computed, from the least to the most busy one.")
    lines += [f"{one.sync}: {_blocking(one.blocking)}" for one in report.models if one.blocking is not None]
    lines += [
        f"{one.sync}: gradients took 1/{1 / one.encoded:.1f} of their bytes" for one in report.models if one.encoded
    ]
    lines += [f"{one.sync}: {one.failed} of {one.runs} runs failed" for one in report.models if one.failed]
    return lines


def _brief(comparison: Comparison) -> str:
    """The model that others are compared with; by its place if it would take the width that the first column needs."""
    return comparison.baseline if len(comparison.baseline) <= WIDEST else "the first"


def _blocking(blocking: Blocking) -> str:
    others = "" if blocking.for_others is None else f"{1000 * blocking.for_others:.1f} ms for others, and "
    return (
        f"at the end of a round (median of {blocking.rounds:g}) workers wait up to {others}"
        f"{1000 * blocking.until_parameters:.1f} ms until they have new parameters; an iteration of the fastest takes "
        f"{1000 * blocking.iteration:.1f} ms."
    )


def _row(report: Report, standing: Standing) -> list[str]:
    comparison = report.comparison
    row = [standing.sync]
    if comparison.grid is not None:
        row.append(standing.value or NONE)
    if standing.fate is not None:
        return [*row, standing.fate, *[NONE] * (len(heads(report)) - len(row) - 1)]
    if comparison.target is not None:
        row += [_spread(standing.seconds_to_target, _seconds), _known(standing.times_as_fast, lambda x: f"{x:.2f}x")]
    row += [
        _accuracy(standing.accuracy),
        _known(standing.samples_per_s, lambda rate: f"{rate:,.0f}"),
        _known(standing.bytes_per_s, lambda rate: f"{rate / 1e6:,.1f}"),
        shares(standing.computing),
        _known(standing.held_pulls, lambda count: f"{count:,.0f}"),
        _known(standing.staleness, lambda updates: f"{updates:.1f}"),
    ]
    return row


def shares(computing: list[float]) -> str:
    """From the least busy worker to the most busy one."""
    if not computing:
        return NONE
    low, high = f"{min(computing):.0%}", f"{max(computing):.0%}"
    return low if low == high else f"{low.rstrip('%')}-{high}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 100 else f"{seconds:.0f}"


def _known(value: float | None, words: Callable[[float], str]) -> str:
    return NONE if value is None else words(value)


def _accuracy(spread: Spread) -> str:
    if spread.median is None or spread.low is None or spread.high is None:
        return NONE
    half = (spread.high - spread.low) / 2
    return f"{spread.median:.1%}" + (f" ±{100 * half:.1f}" if half else "")


def _two_lines(title: str) -> str:
    first, _, rest = title.partition(" ")
    return f"{first}\n{rest}" if rest else title


def _spread(spread: Spread, words: Callable[[float], str]) -> str:
    """The median, and if seeds differ the least and the most."""
    if spread.low is None:
        return "never"
    middle, low, high = (
        "never" if value is None else words(value) for value in (spread.median, spread.low, spread.high)
    )
    return middle if low == high else f"{middle} ({low}-{high})"
