"""A comparison as it goes: one line that changes for the run under way, and one that stays for each that has ended.

Where nobody could see a line change, one is written every minute.
"""

from __future__ import annotations

from time import monotonic

from rich.console import Console
from rich.live import Live
from rich.text import Text

from paceline.compare.one import Watch
from paceline.compare.outcome import Outcome
from paceline.compare.plan import Comparison, Turn
from paceline.launch.run import Measured
from paceline.observe.terminal import PLAIN_EVERY


class ComparisonView:
    """with ComparisonView(console, comparison) as view: compare(..., view)"""

    def __init__(self, console: Console, comparison: Comparison) -> None:
        self._console = console
        self._comparison = comparison
        self._now = self._where = ""
        self._began = self._last = monotonic()
        self._live = Live(console=console, get_renderable=self._line, refresh_per_second=4, transient=True)

    def __enter__(self) -> ComparisonView:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def starts(self, number: int, total: int, turn: Turn) -> Watch:
        self._where, self._now, self._began = f"run {number} of {total}: {turn}", "starting", monotonic()
        self._last = self._began
        return self._measured

    def ended(self, outcome: Outcome) -> None:
        where = self._where.removeprefix("run ")
        self._console.print(f"{where}: {said(outcome, self._comparison.target)}", soft_wrap=True)

    def _measured(self, update: Measured) -> None:
        self._now = f"accuracy {update.accuracy:.3f} after {update.seconds:.1f} s"
        if not self._console.is_terminal and monotonic() - self._last >= PLAIN_EVERY:
            self._last = monotonic()
            self._console.print(self._line(), soft_wrap=True)

    def _line(self) -> Text:
        return Text(f"{self._where}, {monotonic() - self._began:.0f} s, {self._now}", overflow="ellipsis", no_wrap=True)


def said(outcome: Outcome, target: float | None) -> str:
    """How a run went, in one line."""
    if outcome.error is not None:
        return f"failed: {in_a_line(outcome.error)}"
    if target is None or outcome.accuracy is None:
        return f"accuracy {outcome.accuracy or 0.0:.3f} after {outcome.seconds:.1f} s"
    if outcome.seconds_to_target is None:
        return f"accuracy {outcome.accuracy:.3f} after {outcome.seconds:.1f} s, and never {target:.4g}"
    return f"{target:.4g} after {outcome.seconds_to_target:.1f} s, and {outcome.accuracy:.3f} in the end"


def in_a_line(error: str) -> str:
    """The last line; of a traceback the one behind the last call, since messages may go on with lines of hints."""
    lines = error.strip().splitlines()
    calls = [number for number, line in enumerate(lines) if line.startswith("Traceback (")]
    if not calls:
        return lines[-1]
    return next((line for line in lines[calls[-1] + 1 :] if line[:1].strip()), lines[-1])
