"""Draws simulated runs in a terminal: one block for each model, one bar for each worker.

Colour helps but is never needed: what a cell means is in its character. Lines fit the console's width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paceline.sim.record import Lane, Span, Timeline
from paceline.sync import Model
from paceline.sync.models.asp import ASP
from paceline.sync.models.bsp import BSP
from paceline.sync.models.drop import DropStragglers
from paceline.sync.models.dsps import DSPS
from paceline.sync.models.dssp import DSSP
from paceline.sync.models.elastic_bsp import ElasticBSP
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP
from paceline.sync.models.pssp import PSSP
from paceline.sync.models.ssp import SSP

COMPUTING, WAITING, WASTED = "green", "red", "yellow"


class Compared(Struct, frozen=True):
    """A run, and how many times the iterations of `bsp` it used: in the same time, and in a much longer one.

    `whole_rounds`: what looks like an iteration is a round of several, as servers see them under esync.
    """

    model: Model
    timeline: Timeline
    ratio: float | None
    long_ratio: float | None
    whole_rounds: bool = False


class Glyphs(Struct, frozen=True):
    """The characters of a bar; two where one iteration must be told from the next."""

    computing: str
    waiting: str
    sending: str
    wasted: str
    edge: str
    between: str


FANCY = Glyphs("█▒", "·", "-", "xX", "│", " · ")
ASCII = Glyphs("#=", ".", "-", "xX", "|", ", ")


def draw(console: Console, runs: Sequence[Compared], long_seconds: float) -> None:
    """All runs, with a legend before them and a table after them."""
    timelines = [run.timeline for run in runs]
    on = "" if timelines[0].shards == 1 else f" on {timelines[0].shards} shards"
    workers = f"{len(timelines[0].lanes)} workers" if len(timelines[0].lanes) > 1 else "worker"
    pictures(console, runs, f"The same {workers}{on} for {timelines[0].seconds:g} seconds under each model.")
    console.print(table(runs))
    for line in closing(timelines[0].seconds, long_seconds):
        _put(console, line)


def pictures(console: Console, runs: Sequence[Compared], title: str) -> None:
    """All runs, one below the other, with a legend before them."""
    glyphs = ASCII if console.options.ascii_only else FANCY
    timelines = [run.timeline for run in runs]
    labels = [f"worker {lane.worker} ({lane.pace:g}s)" for lane in timelines[0].lanes]
    layout = Layout(console.width, max(map(len, labels)), timelines)
    spans = [span for timeline in timelines for lane in timeline.lanes for span in lane.spans]
    _put(console, Text(title, "bold"))
    for line in legend(timelines[0], spans, glyphs):
        _put(console, line)
    _put(console, axis(timelines[0].seconds, layout))
    for run in runs:
        for line in block(run, labels, layout, glyphs):
            _put(console, line)
        console.print()


class Layout:
    """What goes where in a line: a label, a bar, and two figures."""

    def __init__(self, width: int, label: int, timelines: Sequence[Timeline]) -> None:
        most = max(lane.iterations for timeline in timelines for lane in timeline.lanes)
        self.label = label
        self.count = len(str(most))
        self.width = width
        self.bar = max(8, width - label - self.count - len(" ││  it 100%"))


def block(run: Compared, labels: Sequence[str], layout: Layout, glyphs: Glyphs) -> Iterator[Text]:
    """One model: what it does, where each worker waits, and what that comes to."""
    timeline, unit = run.timeline, "rd" if run.whole_rounds else "it"
    name, said = Text(f"{timeline.model}:", "bold"), Text(words(run.model), "italic")
    if len(name) + len(said) + 1 <= layout.width:
        yield Text(" ").join([name, said])
    else:
        yield name
        yield said
    for label, lane in zip(labels, timeline.lanes, strict=True):
        line = Text(f"{label:{layout.label}} ") + Text(glyphs.edge, "dim")
        line += bar(lane, timeline.seconds, layout.bar, glyphs) + Text(glyphs.edge, "dim")
        yield line + Text(f" {lane.iterations:{layout.count}} {unit} {lane.computing:4.0%}")
    yield summary(run, glyphs)


def bar(lane: Lane, seconds: float, width: int, glyphs: Glyphs) -> Text:
    """A worker's time in cells. Each shows what took most of it; a wait is marked with whom it is for, if that fits."""
    nth = {id(span): n for n, span in enumerate(span for span in lane.spans if span.kind == "computing")}
    text = Text()
    for _, run in groupby(cells(lane.spans, seconds, width), key=id):
        found = list(run)
        span = found[0]
        if span.kind == "computing":
            shades = glyphs.wasted if span.wasted >= 0.5 else glyphs.computing
            text.append(shades[nth[id(span)] % 2] * len(found), WASTED if span.wasted >= 0.5 else COMPUTING)
        elif span.waiting_for:
            label = ",".join(map(str, span.waiting_for))
            text.append((label if len(label) <= len(found) else "").center(len(found), glyphs.waiting), WAITING)
        else:
            text.append(glyphs.sending * len(found), "dim")
    return text


def cells(spans: Sequence[Span], seconds: float, width: int) -> Iterator[Span]:
    """For each of `width` equal parts of the time, the span that has most of it. Spans tile the time."""
    first = 0
    for cell in range(width):
        begin, end = cell * seconds / width, (cell + 1) * seconds / width
        while spans[first].end <= begin and first + 1 < len(spans):
            first += 1
        best, most, at = spans[first], -math.inf, first
        while at < len(spans) and spans[at].start < end:
            overlap = min(end, spans[at].end) - max(begin, spans[at].start)
            if overlap > most + 1e-9 * seconds:
                best, most = spans[at], overlap
            at += 1
        yield best


def axis(seconds: float, layout: Layout) -> Text:
    """The time above the bars."""
    least = 9 * seconds / layout.bar  # nine cells for each figure
    scale = 10.0 ** math.floor(math.log10(least))
    step = next(digit * scale for digit in (1, 2, 5, 10, 20) if digit * scale >= least)
    line, tick = "", 0
    while tick * step <= seconds:
        at = round(tick * step / seconds * layout.bar)
        label = f"{tick * step:g}s"
        if at + len(label) <= layout.bar + 1:
            line = line.ljust(at) + label
        tick += 1
    return Text(" " * (layout.label + 2) + line, "dim")


def legend(timeline: Timeline, spans: Sequence[Span], glyphs: Glyphs) -> Iterator[Text]:
    """What the characters mean; those that do not occur are left out."""
    slow = max(timeline.lanes, key=lambda lane: lane.pace)
    shades = "".join(shade * 3 for shade in glyphs.computing * 2)
    yield Text.assemble("  ", (shades, COMPUTING), "  computing; the shade changes with every iteration")
    example = str(slow.worker).center(12, glyphs.waiting)
    yield Text.assemble("  ", (example, WAITING), f"  waiting, for worker {slow.worker}")
    if any(span.wasted >= 0.5 for span in spans):
        shades = "".join(shade * 3 for shade in glyphs.wasted * 2)
        yield Text.assemble("  ", (shades, WASTED), "  computed in vain: came too late and was thrown away")
    if any(span.kind == "waiting" and not span.waiting_for for span in spans):
        yield Text.assemble("  ", (glyphs.sending * 12, "dim"), "  messages under way, nobody to wait for")
    yield Text("  Left: seconds per iteration. Right: iterations done, share of time computing.")
    yield Text()


def summary(run: Compared, glyphs: Glyphs) -> Text:
    """One line under a block."""
    timeline = run.timeline
    done = [f"{timeline.iterations} iterations", f"{_times(run.ratio)} bsp"]
    parts = [
        *([f"{timeline.rounds} rounds"] if run.whole_rounds else done),
        f"{timeline.held_pulls} held pulls",
        f"mean staleness {timeline.staleness:.1f}",
        f"{timeline.dropped} dropped",
    ]
    return Text(glyphs.between.join(parts), "bold")


def table(runs: Sequence[Compared]) -> Table:
    """All models side by side."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("\nmodel", overflow="fold")
    titles = ("/iterations", "/vs bsp", "long/run", "time/waiting", "held/pulls", "mean/staleness", "/dropped")
    for title in titles:
        table.add_column(title.replace("/", "\n"), justify="right", no_wrap=True)
    for run in runs:
        timeline = run.timeline
        table.add_row(
            Text(timeline.model),
            str(timeline.iterations),
            _times(run.ratio),
            _times(run.long_ratio),
            f"{1 - timeline.computing:.0%}",
            str(timeline.held_pulls),
            f"{timeline.staleness:.1f}",
            str(timeline.dropped),
        )
    return table


def closing(seconds: float, long_seconds: float) -> Iterator[Text]:
    """How to read the table."""
    yield Text()
    yield Text(
        f"vs bsp: iterations whose gradients were used, against bsp in the same {seconds:g} seconds; "
        f"long run: in {long_seconds:g} seconds."
    )
    yield Text(
        "More iterations are not more accuracy: staleness, the updates that a gradient missed while it was computed, "
        "is the price of not waiting, dropped work is lost, and local replicas drift apart until they are averaged."
    )


def words(model: Model) -> str:
    """What a model does, in plain words and with its own numbers; for a user's own, how its docstring begins."""
    match model:
        case BSP() | SSP(s=0):
            return "everyone waits for the slowest at every iteration"
        case ASP() | SSP(s=math.inf):
            return "nobody ever waits; gradients may be of very old parameters"
        case SSP(s=s):
            until = "all have caught up" if model.release == "lazy" else "the slowest moves on"
            return f"a worker may run {_iterations(s)} ahead; then it waits until {until}"
        case DSPS(s_min=low, s_max=high):
            return f"like ssp, but its bound follows how uneven the workers are, from {low} to {high}"
        case DSSP(s_low=low, s_high=high):
            return f"like ssp, but who is {low} ahead may go on, up to {high}, to where it meets the slowest"
        case PSSP(s=s, c=c):
            if c is None:
                return f"like ssp, but from {s} ahead on it may wait, likelier the further it is ahead"
            return f"like ssp, but from {s} ahead on a coin decides: it waits with probability {c:g}"
        case DropStragglers(n_t=n):
            return f"a round ends with the first {n} gradients; what comes later is thrown away"
        case ElasticBSP(R=horizon):
            return f"all run freely to a common barrier, planned up to {_iterations(horizon)} ahead"
        case PSP(c=c, tau_push=tau, b=b):
            more = f", and what comes in {tau:g} s more" if tau else ""
            enough = f"; {b:.0%} of the blocks suffice" if b < 1 else ""
            return f"a round takes {c} gradients{more}; the rest is thrown away{enough}"
        case ESync():
            return "the fast do local iterations until the slowest is done, then all average"
    first = (type(model).__doc__ or "").strip().split("\n\n")[0]
    return " ".join(first.replace("`", "").split()) or "a model of your own"


def _iterations(count: float) -> str:
    return "1 iteration" if count == 1 else f"{count} iterations"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _put(console: Console, line: Text) -> None:
    console.print(line, overflow="fold")
