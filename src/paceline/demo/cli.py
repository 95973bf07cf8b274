"""`paceline demo`: what waiting costs, seen in two minutes on any machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.observe.terminal import complain, console_for_figures, print_json, stop
from paceline.sync import ModelError, parse

if TYPE_CHECKING:
    from rich.table import Table

    from paceline.demo.compare import Learnt

MODELS = ("bsp", "elastic_bsp(R=15)", "asp")
SLOW = ("worker *: +20ms", "worker 3: +180ms")
WORKERS = 4
MOST_SHOWN = 4.0  # seconds of the picture


def demo(
    sync: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="A model to train under; give it again for more. Without it, three."),
    ] = None,
    target: Annotated[float, typer.Option(min=0.2, max=0.97, help="The test accuracy to train to.")] = 0.95,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all figures as one JSON document, and only that.")
    ] = False,
) -> None:
    """Learn digits with four real workers, one of them far slower, under plain BSP and under other models.

    Each model trains the same network on the same data until the same test accuracy. Then a table says how long it took
    and a picture where the time went.
    """
    from paceline.nodes import NodeError

    try:
        models = [str(parse(expression)) for expression in sync or MODELS]
    except ModelError as error:
        stop(f"{error}. See paceline models")
    try:
        with tempfile.TemporaryDirectory(prefix="paceline-demo-") as folder:
            learnt = [_learn(model, target, Path(folder) / str(n), as_json) for n, model in enumerate(models)]
            if as_json:
                print_json(learnt)
            else:
                _show(learnt, target)
    except NodeError as error:
        complain(str(error))
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _learn(sync: str, target: float, folder: Path, quiet: bool) -> Learnt:
    from paceline.demo.compare import learn
    from paceline.launch.run import Reported, Update
    from paceline.nodes import Job
    from paceline.observe.progress import ProgressView
    from paceline.slowness import parse as parse_slowness

    console = console_for_figures()
    console.quiet = quiet
    with ProgressView(console, WORKERS, f"{sync}: digits to {target:.0%}") as view:

        def watch(update: Update) -> None:
            if isinstance(update, Reported):
                view.report(update.worker, update.progress)

        slow = tuple(parse_slowness(text) for text in SLOW)
        learnt = learn(Job(workers=WORKERS, sync=sync), target, slow, folder, watch)
    console.print(f"{sync}: {target:.0%} of the test digits right after {learnt.seconds:.1f} s")
    return learnt


def _show(learnt: list[Learnt], target: float) -> None:
    from paceline.observe.timeline import Compared, pictures

    console = console_for_figures()
    shown = min(MOST_SHOWN, *(one.seconds for one in learnt))
    timelines = [one.timeline(shown) for one in learnt]
    runs = [
        Compared(parse(one.sync), timeline, timeline.against(timelines[0]), None)
        for one, timeline in zip(learnt, timelines, strict=True)
    ]
    console.print()
    pictures(console, runs, f"The first {shown:.1f} seconds of training, as the server saw them.")
    console.print(_table(learnt, target))
    console.print(f"Slowness that was asked for: {', '.join(SLOW)}. Try your own: paceline run --help")


def _table(learnt: list[Learnt], target: float) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    first = learnt[0]
    for title in ("model", f"seconds to {target:.0%}", f"faster than {first.sync}", "iterations", "waiting"):
        table.add_column(title, justify="left" if title == "model" else "right")
    for one in learnt:
        workers = one.summary.workers
        total = sum(worker.computing_s + worker.waiting_s for worker in workers) or 1.0
        waiting = sum(worker.waiting_s for worker in workers) / total
        faster = f"{first.seconds / one.seconds:.1f}x"
        table.add_row(one.sync, f"{one.seconds:.1f}", faster, f"{one.summary.iterations:,}", f"{waiting:.0%}")
    return table
