"""`paceline compare`: one script under several models, a table, a picture and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.launch.run_folder import run_folder
from paceline.observe.terminal import complain, console_for_figures, console_for_progress, print_json, stop
from paceline.sync import ModelError

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.compare.plan import Comparison
    from paceline.compare.whole import Report

MOST_WORKERS = 256  # processes on one machine


def compare(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script that calls paceline.report.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="For the script.")] = None,
    sync: Annotated[
        list[str] | None,
        typer.Option(
            metavar="EXPR",
            help="A model, or ddp for torch's own, or with a codec as in 'bsp + fp16'; give it again for more.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help=f"How many workers, 1 to {MOST_WORKERS}.")] = 4,
    servers: Annotated[int, typer.Option(help="How many servers; ddp has none.")] = 1,
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Slow a node down, such as 'worker 3: 5x'; give it again for more."),
    ] = None,
    target: Annotated[float | None, typer.Option(help="The accuracy to train to, such as 0.8.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Train for so long in each run, also after the target is reached.")
    ] = None,
    within: Annotated[
        float, typer.Option(help="Without --seconds: how long to train at most if the target is not reached.")
    ] = 300.0,
    seeds: Annotated[int, typer.Option(help="How often each model trains, each time with another seed.")] = 1,
    grid: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Each model gets its best of these, such as '--lr 0.05,0.1,0.2'."),
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="TEXT", help="Arguments for one model only, such as 'ssp(s=3): --lr 0.1'."),
    ] = None,
    folder: Annotated[str | None, typer.Option(help="Where everything goes; without it, a new one in runs.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all figures as one JSON document, and only that.")
    ] = False,
) -> None:
    """Train with one script under several models, in turn, with the same seeds, data and slowness, and compare them.

    The script says how good its model is by paceline.report(accuracy=...). Everything behind SCRIPT is for the script.
    Exit code 1 if a run has failed; the others are shown all the same. Ctrl-C ends it, with exit code 130, and shows
    what there is by then.
    """
    from paceline.compare.plan import CompareError, Comparison, grid_of, model_of, own_of

    _check(script, workers, servers, slow or [])
    try:
        models = tuple(model_of(expression) for expression in sync or [])
        comparison = Comparison(
            script=str(script),
            models=models,
            arguments=tuple(arguments or ()),
            own=own_of(own or [], models),
            workers=workers,
            servers=servers,
            slow=tuple(slow or ()),
            target=target,
            seconds=seconds,
            within=within,
            seeds=seeds,
            grid=None if grid is None else grid_of(grid),
        )
    except (CompareError, ModelError) as error:
        stop(str(error))
    where = run_folder(folder, f"compare-{script.stem}")
    report = carried_out(comparison, where, as_json=as_json)
    if as_json:
        print_json(report)
    else:
        show(console_for_figures(), report, where)
    leave(report)


def carried_out(comparison: Comparison, folder: Path, *, as_json: bool) -> Report:
    """Train, and keep the figures, the picture and the page in the folder; with Ctrl-C, of the runs that have ended."""
    from paceline.compare.page import page
    from paceline.compare.picture import draw, png
    from paceline.compare.view import ComparisonView
    from paceline.compare.whole import compare as run_all

    with ComparisonView(console_for_progress(as_json=as_json), comparison) as view:
        report = run_all(comparison, folder, view)
    if report.ended < report.planned:
        complain(f"interrupted after {report.ended} of {report.planned} runs; logs are in {folder}")
    if not report.rows:
        leave(report)
    picture = png(draw(report))
    (folder / "comparison.png").write_bytes(picture)
    (folder / "comparison.html").write_text(page(report, picture), encoding="utf-8")
    return report


def leave(report: Report) -> None:
    """Exit with what says how it went, unless all went well."""
    if report.ended < report.planned:
        raise typer.Exit(130)
    if report.failed:
        raise typer.Exit(1)


def show(console: Console, report: Report, folder: Path) -> None:
    from paceline.compare.table import legend, table

    console.print()
    console.print(table(report))
    for line in legend(report):
        console.print(line)
    console.print(f"picture: {folder / 'comparison.png'}", soft_wrap=True)
    console.print(f"page:    {folder / 'comparison.html'}", soft_wrap=True)


def _check(script: Path, workers: int, servers: int, slow: Sequence[str]) -> None:
    from paceline.slowness import SlownessError, check, parse

    if not script.is_file():
        stop(f"there is no script {str(script)!r}; give the path of a Python file")
    if not 1 <= workers <= MOST_WORKERS:
        stop(f"--workers {workers} cannot be started here; give a number from 1 to {MOST_WORKERS}")
    if servers < 1:
        stop(f"--servers is {servers}; it is a whole number from 1")
    try:
        check([parse(text) for text in slow], workers, servers)
    except SlownessError as error:
        stop(f"--slow {error}")
