"""A run as it goes, in a terminal: a table that is kept up to date, or plain lines where nobody could see it change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from paceline.training.session import Progress

PLAIN_EVERY = 5.0  # seconds between two plain lines


class ProgressView:
    """with ProgressView(console, workers=4, title="bsp") as view: view.report(...)"""

    def __init__(self, console: Console, workers: int, title: str) -> None:
        self._console = console
        self._title = title
        self._workers: dict[int, Progress | None] = dict.fromkeys(range(workers))
        self._began = self._last = monotonic()
        self._live = Live(console=console, refresh_per_second=5, transient=True) if console.is_terminal else None
        self._context: AbstractContextManager[object] = self._live or nullcontext()

    def __enter__(self) -> ProgressView:
        self._context.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._context.__exit__(None, None, None)

    def wrote(self, worker: int, line: str) -> None:
        self._console.print(f"worker {worker}: {line}", markup=False, highlight=False, soft_wrap=True)

    def report(self, worker: int, progress: Progress) -> None:
        self._workers[worker] = progress
        if self._live is not None:
            self._live.update(self._table())
        elif monotonic() - self._last >= PLAIN_EVERY:
            self._last = monotonic()
            self._console.print(self._line(), markup=False, highlight=False, soft_wrap=True)

    def _line(self) -> str:
        parts = [
            f"worker {worker} {progress.steps} ({share(progress):.0%} waiting)"
            for worker, progress in self._workers.items()
            if progress is not None
        ]
        return f"{monotonic() - self._began:.0f} s, iterations: {', '.join(parts)}"

    def _table(self) -> Table:
        table = Table(title=f"{self._title}, {monotonic() - self._began:.0f} s", title_justify="left")
        for column in ("worker", "iterations", "per second", "samples/s", "waiting", "mostly for"):
            table.add_column(column, justify="right")
        for worker, progress in self._workers.items():
            table.add_row(*cells(worker, progress))
        return table


def cells(worker: int, progress: Progress | None) -> tuple[str, ...]:
    """A worker's row."""
    if progress is None:
        return str(worker), "", "", "", "", "starting"
    seconds = max(progress.computing + progress.waiting, 1e-9)
    samples = "" if progress.samples is None else f"{progress.samples / seconds:,.0f}"
    return (
        str(worker),
        f"{progress.steps:,}",
        f"{progress.steps / seconds:.1f}",
        samples,
        f"{share(progress):.0%}",
        mostly(progress.held_for),
    )


def share(progress: Progress) -> float:
    """Of its time, how much it waited."""
    seconds = progress.computing + progress.waiting
    return progress.waiting / seconds if seconds else 0.0


def mostly(held_for: Mapping[int, int]) -> str:
    """For whom it was held most often."""
    if not held_for:
        return ""
    worker, times = max(held_for.items(), key=lambda item: item[1])
    return f"worker {worker} ({times}x)"
