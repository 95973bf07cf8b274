"""`paceline reproduce`: the papers' tables and figures beside ours."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from paceline.observe.terminal import console_for_figures, print_json, saying, stop
from paceline.params.optimizer import nearest
from paceline.reproduce.target import Progress, Result, Row, Target

COLOURS = {"holds": "green", "holds in direction": "yellow", "does not hold": "red"}


def reproduce(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TARGET]...", help="Which tables or figures; all for all. Without it, what there is."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="A short form: rough figures of what is timed, small networks where something is learnt."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where figures go.")] = Path("reproduction"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show a paper's table or figure beside ours, and say of each claim whether it holds on the cluster that we assume.

    A claim that does not hold is told; the exit code is 0 all the same.
    """
    if not targets:
        _list(as_json)
        return
    documents = []
    for target in _chosen(targets, quick):
        begun = perf_counter()
        result = _run(target, quick)
        seconds = perf_counter() - begun
        path = out / f"{target.name}.png"
        _draw(target, result, path)
        if as_json:
            documents.append(_document(target, result, seconds, path, quick))
        else:
            _print(target, result, seconds, path, quick)
    if as_json:
        print_json(documents)


def _targets() -> dict[str, Target]:
    """Imported when they are asked for: what draws takes a while to load."""
    from paceline.reproduce.all import TARGETS

    return TARGETS


def _chosen(names: list[str], quick: bool) -> list[Target]:
    targets = _targets()
    for name in names:
        if name not in (*targets, "all"):
            stop(f"there is no target {name!r}{nearest(name, targets)}; there are {', '.join(targets)}, and all")
    if "all" not in names:
        return [targets[name] for name in dict.fromkeys(names)]
    import torch

    left_out = [] if quick or torch.cuda.is_available() else [one.name for one in targets.values() if one.learns]
    if left_out:
        typer.echo(f"left out, since they take hours without a GPU: {', '.join(left_out)}; add --quick", err=True)
    return [target for target in targets.values() if target.name not in left_out]


def _draw(target: Target, result: Result, path: Path) -> None:
    from paceline.reproduce.picture import save

    try:
        save(target.draw(result), path)
    except OSError as error:
        stop(f"{str(path)!r} cannot be written: {error}")


def _run(target: Target, quick: bool) -> Result:
    from paceline.data.source import DataError

    with saying(target.name) as say:

        def progress(done: int, total: int, what: str) -> None:
            say(f"{done} of {total}, {what}")

        told: Progress = progress
        try:
            return target.run(quick, told)
        except DataError as error:
            stop(str(error))


# What the user gets.


def _list(as_json: bool) -> None:
    targets = list(_targets().values())
    if as_json:
        print_json([{"name": t.name, "paper": t.paper, "shows": t.shows, "takes": t.takes} for t in targets])
        return
    table = _plain_table("target", "paper", "what it shows", "takes")
    for target in targets:
        table.add_row(target.name, target.paper, target.shows, target.takes)
    console = console_for_figures()
    console.print(table)
    console.print("paceline reproduce TARGET runs one, paceline reproduce all runs all")


def _document(target: Target, result: Result, seconds: float, path: Path, quick: bool) -> dict[str, Any]:
    about = {name: getattr(target, name) for name in ("name", "paper", "shows", "assumed", "calibrated")}
    cluster = msgspec.to_builtins(target.cluster)
    return {
        **about,
        "cluster": cluster,
        "quick": quick,
        **msgspec.to_builtins(result),
        "seconds": seconds,
        "figure": str(path),
    }


def _print(target: Target, result: Result, seconds: float, path: Path, quick: bool) -> None:
    console = console_for_figures()
    console.print(Text(f"{target.name}: {target.paper}, {target.shows}{' (quick)' if quick else ''}", "bold"))
    for said in target.assumed:
        console.print(f"  assumed: {said}")
    console.print(f"  calibrated: {target.calibrated}")
    console.print()
    table = _plain_table("", "cell", "paper", "ours", "unit", "")
    for group in result.groups():
        for number, row in enumerate(result.of(group)):
            table.add_row(group if not number else "", *_cells(row))
    console.print(table)
    for note in result.notes:
        console.print(f"note: {note}")
    console.print()
    for claim in result.claims:
        console.print(Text.assemble((claim.verdict, f"bold {COLOURS[claim.verdict]}"), f": {claim.text}"))
        console.print(f"    {claim.why} (the rule: {claim.rule})")
    console.print()
    console.print(f"{path} drawn; {seconds:.0f} seconds", soft_wrap=True)
    console.print()


def _cells(row: Row) -> tuple[str, ...]:
    return row.cell, _figure(row.paper), _figure(row.ours), row.unit, "calibrated on" if row.calibrated else ""


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _plain_table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, justify="right" if title in ("paper", "ours") and "cell" in titles else "left")
    return table
