"""`paceline simulate`: the same uneven workers under several models, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from paceline.observe import Compared, ShardSetup, Trace, TraceError, draw, read
from paceline.observe.recorded import timeline as recorded
from paceline.observe.terminal import console_for_figures, print_json, stop
from paceline.sim import cluster as clusters
from paceline.sim.cluster import Cluster, ClusterError, of_paces
from paceline.sim.record import Timeline
from paceline.sim.timeline import simulate_cluster
from paceline.slowness import SlownessError
from paceline.sync import InvariantViolated, Model, ModelError, parse

SHOWN = (
    "bsp",
    "ssp(s=3)",
    "pssp(s=3, c=0.5, release=soft)",
    "drop(n_t=3)",
    "psp(c=2, tau_push=0.5)",
    "elastic_bsp(R=15)",
    "esync",
    "asp",
)
PACES, JITTER = "1,1.2,1.5,4", 0.1
ITERATIONS = 24  # of a usual worker, to show
LONGER = 20  # how many times as long the long run is
LIMIT = 500_000  # how many iterations, counted on each shard, a simulation may take; some seconds


def simulate(
    cluster: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CLUSTER]", help="A TOML file that describes machines, or the folder of a run, as it was measured."
        ),
    ] = None,
    sync: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="A model to show; give it again for more. Without it, a selection of eight."),
    ] = None,
    paces: Annotated[
        str | None,
        typer.Option(metavar="SECONDS,...", help=f"How long each worker takes for an iteration; without it, {PACES}."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="How much time to show; without it, some iterations.")] = None,
    shards: Annotated[int | None, typer.Option(help="How many shards the parameters are cut into.")] = None,
    latency: Annotated[float | None, typer.Option(help="How many seconds a message travels.")] = None,
    jitter: Annotated[
        float | None, typer.Option(help=f"How far off its pace an iteration may be, as a share; without it, {JITTER}.")
    ] = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Slow a node down, such as 'worker 3: 5x'; give it again for more."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="For all that is random.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the shards were told and said; with one --sync.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the machines as a TOML file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all figures and spans as one JSON document.")] = False,
) -> None:
    """Show the same uneven workers under several models: where each waits, and for whom.

    Nothing is trained: the synchronization core runs in virtual time, with its invariants on.
    """
    models = [_parse(expression) for expression in sync or SHOWN]
    given = {"--paces": paces, "--shards": shards, "--latency": latency, "--jitter": jitter, "--seed": seed}
    try:
        machines = _cluster(cluster, given, slow or [])
        shown = _seconds(seconds, machines)
        _check(models, machines, shown)
        if save is not None:
            save.write_text(clusters.to_toml(machines))
        runs = _compared(models, machines, shown, trace)
    except (ClusterError, SlownessError, TraceError) as error:
        stop(str(error))
    except InvariantViolated as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    if as_json:
        about = {"seconds": shown, "long_run_seconds": shown * LONGER, "cluster": msgspec.to_builtins(machines)}
        print_json({**about, "models": [_run(run) for run in runs]})
    else:
        draw(console_for_figures(), runs, shown * LONGER)


def _compared(models: Sequence[Model], machines: Cluster, seconds: float, trace: Path | None) -> list[Compared]:
    """Each model beside bsp, for the time to show and for a long one."""
    base = simulate_cluster("bsp", machines, seconds)
    long_base = simulate_cluster("bsp", machines, seconds * LONGER)
    runs = []
    for model in models:
        timeline = _traced(model, machines, seconds, trace, alone=len(models) == 1)
        ratio = simulate_cluster(model, machines, seconds * LONGER).against(long_base)
        runs.append(Compared(model, timeline, timeline.against(base), ratio))
    return runs


def _traced(model: Model, machines: Cluster, seconds: float, trace: Path | None, *, alone: bool) -> Timeline:
    if trace is not None and not alone:
        stop("--trace writes the events of one model; give one --sync")
    setups = [ShardSetup(str(model), machines.size, machines.seed, index) for index in range(machines.cuts)]
    with nullcontext() if trace is None else Trace(trace, setups) as writing:
        return simulate_cluster(model, machines, seconds, None if writing is None else writing.record)


# What the user gave.


def _parse(expression: str) -> Model:
    try:
        return parse(expression)
    except ModelError as error:
        stop(f"{error}. See paceline models")


def _cluster(path: Path | None, given: dict[str, Any], slow: list[str]) -> Cluster:
    if path is None:
        paces = _paces(PACES if given["--paces"] is None else given["--paces"])
        shards = 1 if given["--shards"] is None else given["--shards"]
        if shards < 1:
            stop(f"--shards {shards} is too few; give a whole number from 1")
        return of_paces(
            paces,
            jitter=JITTER if given["--jitter"] is None else given["--jitter"],
            latency=given["--latency"] or 0.0,
            shards=shards,
            slow=slow,
            seed=given["--seed"] or 0,
        )
    for option, value in given.items():
        if value is not None:
            stop(f"{option} is for machines that no file describes; change it in {path}")
    machines = _measured(path) if path.is_dir() else clusters.read(path)
    return msgspec.structs.replace(machines, slow=(*machines.slow, *slow))


def _measured(folder: Path) -> Cluster:
    """The machines of a run, from the trace of its first server."""
    return clusters.measured(recorded(read(folder / "server-0.trace")))


def _paces(text: str) -> list[float]:
    try:
        paces = [float(part) for part in text.split(",")]
    except ValueError:
        paces = []
    if not paces or not all(0 < pace < math.inf for pace in paces):
        stop(f"--paces {text!r} are not seconds per iteration; give a number above 0 for each worker, such as 1,1.2,3")
    return paces


def _seconds(given: float | None, machines: Cluster) -> float:
    if given is None:
        return ITERATIONS * min(group.pace for group in machines.workers)
    if not 0 < given < math.inf:
        stop(f"--seconds {given:g} is not a time to show; give a number above 0")
    return given


def _check(models: Sequence[Model], machines: Cluster, seconds: float) -> None:
    once = sum(group.count * seconds / group.pace for group in machines.workers) * machines.cuts
    iterations = once * (1 + LONGER) * (1 + len(models))
    if iterations > LIMIT:
        stop(
            f"this would take about {iterations:.2g} iterations, {LIMIT} at most are shown; "
            "give fewer --seconds, shards, workers or models"
        )


# What the user gets.


def _run(run: Compared) -> dict[str, Any]:
    figures: dict[str, Any] = msgspec.to_builtins(run.timeline)
    return {**figures, "vs_bsp": run.ratio, "vs_bsp_long_run": run.long_ratio}
