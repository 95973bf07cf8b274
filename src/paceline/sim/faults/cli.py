"""`paceline faults`: the core through drawn faults, and what replays a failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console
from rich.progress import track

from paceline.observe import ShardSetup, Trace, TraceError
from paceline.observe.terminal import console_for_figures, print_json, stop
from paceline.sim.faults.draw import Plan, draw
from paceline.sim.faults.seeds import SeedFailed, run_seed
from paceline.sync import Model, ModelError, parse


class Tally(Struct):
    """What all runs together have seen."""

    seeds: int
    events: int
    faults: Counter[str]
    models: Counter[str]  # in how many runs each was in force
    resent: int
    doubled: int
    lives: int


def faults(
    seeds: Annotated[int, typer.Option(help="How many runs to draw.")] = 1000,
    first: Annotated[int, typer.Option(help="The first of their seeds.")] = 0,
    seed: Annotated[int | None, typer.Option(help="This one alone: what replays a failure.")] = None,
    sync: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Under this model alone; without it, under all of them.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the shards were told and said; with --seed.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON document.")] = False,
) -> None:
    """Let the synchronization core run through crashes, partitions, lost messages and clocks that jump.

    Everything is drawn from a seed and happens in virtual time. Exit code 1 if something is wrong; then the last line
    is the command that shows it again.
    """
    drawn = _seeds(seeds, first, seed)
    model = None if sync is None else _parse(sync)
    if trace is not None and seed is None:
        stop("--trace writes the events of one run; give its --seed")
    try:
        tally, failed = _run(drawn, model, trace)
    except TraceError as error:
        stop(str(error))
    if as_json:
        violation = None if failed is None else {"seed": failed.plan.seed, "command": failed.command}
        story = None if failed is None else failed.story
        print_json({"first": drawn[0], "tally": tally, "violation": violation, "story": story})
    else:
        _show(tally, failed)
    if failed is not None:
        typer.echo(str(failed), err=True)
        raise typer.Exit(1)


def _run(drawn: range, model: Model | None, trace: Path | None) -> tuple[Tally, SeedFailed | None]:
    """Up to the first that fails."""
    tally = Tally(0, 0, Counter(), Counter(), 0, 0, 0)
    for seed in _progress(drawn):
        plan = draw(seed, model)
        with nullcontext() if trace is None else Trace(trace, _setups(plan)) as writing:
            try:
                outcome = run_seed(seed, model, None if writing is None else writing.record)
            except SeedFailed as failed:
                return tally, failed
        tally.seeds += 1
        tally.events += outcome.events
        tally.faults += outcome.faults
        tally.models.update(parse(expression).label() for expression in plan.expressions)
        tally.resent += outcome.resent
        tally.doubled += outcome.doubled
        tally.lives += outcome.lives
    return tally, None


def _progress(drawn: range) -> Iterable[int]:
    """Shows on stderr how far it is, where that is a terminal."""
    console = Console(stderr=True)
    hidden = len(drawn) == 1 or not console.is_terminal
    return track(drawn, "seeds", total=len(drawn), console=console, transient=True, disable=hidden)


def _setups(plan: Plan) -> list[ShardSetup]:
    workers = len(plan.paces)
    return [ShardSetup(str(parse(model)), workers, plan.seed, index) for index, model in enumerate(plan.models)]


# What the user gave.


def _seeds(seeds: int, first: int, seed: int | None) -> range:
    if seed is not None:
        seeds, first = 1, seed
    if seeds < 1:
        stop(f"--seeds {seeds} is too few; give a whole number from 1")
    if first < 0:
        stop(f"{first} is no seed; give a whole number from 0")
    return range(first, first + seeds)


def _parse(expression: str) -> Model:
    try:
        return parse(expression)
    except ModelError as error:
        stop(f"{error}. See paceline models")


# What the user gets.


def _show(tally: Tally, failed: SeedFailed | None) -> None:
    console = console_for_figures()
    ending = "no violation" if failed is None else "then a violation"
    total = tally.faults.total()
    console.print(f"{_many(tally.seeds, 'seed')}: {_many(tally.events, 'event')}, {_many(total, 'fault')}, {ending}")
    if tally.seeds:
        console.print(f"faults: {_counts(tally.faults)}")
        console.print(f"models: {_counts(tally.models)}")
        console.print(
            f"{_many(tally.lives, 'life', 'lives')} of workers, {_many(tally.resent, 'message')} sent again, "
            f"{tally.doubled:,} that came twice"
        )


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.most_common())


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"
