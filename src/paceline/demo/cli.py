"""`paceline demo`: what waiting costs, seen in two minutes on any machine. It is a short `paceline compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.launch.run_folder import run_folder
from paceline.observe.terminal import console_for_figures, print_json, stop
from paceline.sync import ModelError, parse
from paceline.sync.models.esync import ESync

if TYPE_CHECKING:
    from paceline.compare.outcome import Outcome
    from paceline.compare.whole import Report

MODELS = ("ddp", "bsp", "elastic_bsp(R=15)", "esync", "asp")
SLOW = ("worker *: +20ms", "worker 3: +180ms")
WORKERS = 4
WITHIN = 60.0  # seconds
SCRIPT = Path(__file__).parent / "digits.py"
MOST_SHOWN = 4.0  # seconds of the picture


def demo(
    sync: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="A model to train under, or ddp; give it again for more. Without it, five."),
    ] = None,
    target: Annotated[float, typer.Option(min=0.2, max=0.97, help="The test accuracy to train to.")] = 0.95,
    folder: Annotated[str | None, typer.Option(help="Where everything goes; without it, a new one in runs.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all figures as one JSON document, and only that.")
    ] = False,
) -> None:
    """Learn digits with four real workers, one of them far slower, under torch's own DDP and under other models.

    Each model trains the same network on the same data until the same test accuracy. Then a picture says where the time
    went and a table how long it took.
    """
    from paceline.compare.cli import carried_out, leave, show
    from paceline.compare.plan import CompareError, Comparison, model_of

    try:
        comparison = Comparison(
            script=str(SCRIPT),
            models=tuple(model_of(expression) for expression in sync or MODELS),
            workers=WORKERS,
            slow=SLOW,
            target=target,
            within=WITHIN,
        )
    except (CompareError, ModelError) as error:
        stop(str(error))
    where = run_folder(folder, "demo")
    report = carried_out(comparison, where, as_json=as_json)
    if as_json:
        print_json(report)
    else:
        _draw(report)
        show(console_for_figures(), report, where)
        typer.echo(f"Slowness that was asked for: {', '.join(SLOW)}. Try your own: paceline compare --help")
    leave(report)


def _draw(report: Report) -> None:
    """Where the first seconds went, as the servers saw them; ddp has none, and of esync they see whole rounds only."""
    from paceline.compare.plan import parts_of
    from paceline.observe.recorded import timeline
    from paceline.observe.timeline import Compared, pictures
    from paceline.observe.trace import read

    seen = [row for row in report.rows if row.held_pulls is not None and row.seconds_to_target is not None]
    if not seen:
        return
    shown = min(MOST_SHOWN, *(row.seconds_to_target or MOST_SHOWN for row in seen))
    timelines = [timeline(read(_trace(row)), shown) for row in seen]
    runs = []
    for row, found in zip(seen, timelines, strict=True):
        model = parse(parts_of(row.sync)[0])
        ratio = found.against(timelines[0])
        runs.append(Compared(model, found, ratio, None, whole_rounds=isinstance(model, ESync)))
    rounds = " Under esync it saw whole rounds, rd." if any(run.whole_rounds for run in runs) else ""
    console = console_for_figures()
    console.print()
    pictures(console, runs, f"The first {shown:.1f} seconds of training, as the server saw them.{rounds}")


def _trace(row: Outcome) -> Path:
    return Path(row.folder) / "server-0.trace"
