"""The command line: one short function for each verb.

A verb with sub-commands of its own is added with `app.add_typer(...)`. What a user got wrong is told in one line on
stderr, with exit code 2.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib.metadata import version
from inspect import getdoc
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from paceline.bench.cli import app as bench
from paceline.compare.cli import compare
from paceline.demo.cli import demo
from paceline.launch.cli import run, serve, sync
from paceline.observe import Difference, TraceError, read, words
from paceline.observe import replay as replay_trace
from paceline.observe.terminal import complain, console_for_figures, print_json, stop
from paceline.reproduce.cli import reproduce
from paceline.sim.cli import simulate
from paceline.sim.faults.cli import faults
from paceline.sync import MODELS, Model, ModelError, parse, signature
from paceline.sync.models.base import NODEFAULT, parameters, show, unnamed
from paceline.sync.models.pssp import PSSP

UPDATES = {
    "immediate": "each gradient is applied when it comes",
    "round": "the gradients of a round are averaged and applied together",
}
USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]  # of what cannot be parsed; Typer does not export it


class OneLine(TyperGroup):
    """Tells what is wrong with a command line in one line."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        rest = {"complete_var": complete_var, "windows_expand_args": windows_expand_args, **extra}
        try:
            code = super().main(args, prog_name, standalone_mode=False, **rest)
        except USAGE_ERROR as error:
            if not standalone_mode:
                raise
            text = error.format_message().rstrip(".")  # type: ignore[attr-defined]
            command = error.ctx.command_path if error.ctx else "paceline"  # type: ignore[attr-defined]
            complain(f"{text}. See {command} --help")
            sys.exit(2)
        except typer.Abort:
            code = 1
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(cls=OneLine, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


app.add_typer(bench, name="bench")
app.command(epilog="Example: paceline demo --sync bsp --sync asp")(demo)
app.command(
    epilog="Example: paceline run --workers 4 --sync 'ssp(s=3)' --slow 'worker 3: 5x' examples/digits.py",
    context_settings={"allow_interspersed_args": False},  # what follows the script is its own
)(run)
app.command(
    epilog="Example: paceline compare --sync ddp --sync asp --slow 'worker 3: 5x' --target 0.95 examples/digits.py",
    context_settings={"allow_interspersed_args": False},
)(compare)
app.command(epilog="Example: paceline serve --workers 4 --folder runs/mine")(serve)
app.command(epilog="Example: paceline sync runs/mine 'ssp(s=3)'")(sync)
app.command(epilog="Example: paceline simulate --sync bsp --sync 'ssp(s=3)' --paces 1,1,2")(simulate)
app.command(epilog="Example: paceline reproduce psp-table1 --out figures")(reproduce)
app.command(epilog="Example: paceline faults --seeds 100 --sync 'ssp(s=3)'")(faults)


@app.callback(invoke_without_command=True, epilog="Example: paceline demo")
def paceline(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False,
) -> None:
    """Train models on machines that are not equally fast, and choose how they wait for each other."""
    if show_version:
        typer.echo(f"paceline {version('paceline')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example: paceline models 'pssp(s=3, c=0.5)'")
def models(
    expression: Annotated[
        str | None, typer.Argument(metavar="EXPR", help="Explain this one: a name, or a name with parameters.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON document.")] = False,
) -> None:
    """List the synchronization models, or explain one expression."""
    if expression is None:
        described = [_describe(model) for model in MODELS.values()]
        if as_json:
            print_json(described)
        else:
            _print_models(described)
        return
    kind = MODELS.get(expression.strip())
    if kind is not None and _lacks(kind):
        about = _describe(kind)
    else:
        given = _parse(expression)
        about = _describe(type(given), given)
    if as_json:
        print_json(about)
    else:
        _print_model(about)


@app.command(epilog="Example: paceline replay server-0.trace")
def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A trace that a server has written.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as one JSON document.")] = False,
) -> None:
    """Hand a trace's events to fresh shards, and compare every decision and its reason. Exit code 1 if one differs.

    A model that the trace names by its import path is imported.
    """
    try:
        result = replay_trace(read(file))
    except TraceError as error:
        stop(str(error))
    if as_json:
        difference = _difference(result.difference) if result.difference else None
        print_json({**msgspec.structs.asdict(result), "same": result.same, "difference": difference})
    else:
        decided = "the same decisions" if result.same else "a different decision"
        typer.echo(f"{file}: {result.events} events on {result.shards} shards, {decided}")
        for more in (result.difference, result.cut):
            if more:
                typer.echo(more)
    raise typer.Exit(0 if result.same else 1)


def main() -> None:
    app()


# What the user gave.


def _parse(expression: str) -> Model:
    try:
        return parse(expression)
    except ModelError as error:
        stop(f"{error}. See paceline models")


def _lacks(model: type[Model]) -> bool:
    """Does the bare name of this model leave something open?"""
    try:
        parse(model.label())
    except ModelError:
        return True
    return False


# What the user gets.


def _difference(difference: Difference) -> dict[str, Any]:
    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(one) for one in value]
        if isinstance(value, msgspec.Struct):
            values = {name: named(one) for name, one in msgspec.structs.asdict(value).items()}
            return {"kind": type(value).__name__, **values}
        return value

    return {name: named(value) for name, value in msgspec.structs.asdict(difference).items()}


def _plain(value: Any) -> Any:
    return "inf" if value == math.inf else value


def _describe(kind: type[Model], given: Model | None = None) -> dict[str, Any]:
    """A model as plain data, with the values of an expression if there is one."""
    about: dict[str, Any] = {
        "name": kind.label(),
        "signature": signature(kind),
        "summary": " ".join((getdoc(kind) or "").split("\n\n")[0].replace("`", "").split()),
        "update": kind.update,
        "parameters": [],
    }
    for parameter in parameters(kind):
        if kind.everywhere and parameter.name not in unnamed(kind):
            continue  # partial pulling, which it refuses
        entry = {"name": parameter.name, "allowed": parameter.words, "required": parameter.default is NODEFAULT}
        entry["default"] = None if entry["required"] else _plain(parameter.default)
        if given is not None:
            entry["value"] = _plain(getattr(given, parameter.name))
        about["parameters"].append(entry)
    if given is not None:
        about |= {"expression": str(given), "words": words(given)}
    if isinstance(given, PSSP):
        about["same_regret_as"] = _plain(given.same_regret_as)
    return about


def _print_models(described: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("model", "what it does", "update"):
        table.add_column(title, overflow="fold")
    for about in described:
        table.add_row(Text(about["signature"], "bold"), Text(about["summary"]), Text(about["update"]))
    console = console_for_figures()
    console.print(table)
    console.print()
    for update, said in UPDATES.items():
        console.print(f"{update}: {said}")
    console.print("b, tau_pull: of every model that does not plan; a worker starts without the last blocks, see docs")
    console.print("paceline models EXPR explains one, such as paceline models 'ssp(s=3)'")


def _print_model(about: dict[str, Any]) -> None:
    console = console_for_figures()
    console.print(Text(about.get("expression", about["signature"]), "bold"))
    console.print(Text(about.get("words", about["summary"])))
    console.print(f"update: {about['update']}, {UPDATES[about['update']]}")
    if about["parameters"]:
        console.print()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in ("parameter", "value", "default", "allowed"):
            table.add_column(title, overflow="fold")
        for entry in about["parameters"]:
            default = "must be given" if entry["required"] else show(entry["default"])
            value = show(entry["value"]) if "value" in entry else ""
            table.add_row(*(Text(cell) for cell in (entry["name"], value, default, entry["allowed"])))
        console.print(table)
    if about.get("same_regret_as") is not None:
        s = about["same_regret_as"]
        console.print()
        console.print(f"It shares its regret bound with ssp(s={s if isinstance(s, str) else format(s, '.4g')}).")


if __name__ == "__main__":
    main()
