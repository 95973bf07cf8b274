"""The verbs that start runs and change them. What they need is imported when they are called: torch takes its time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from msgspec.structs import replace

from paceline.launch.run_folder import run_folder
from paceline.observe.terminal import complain, console_for_figures, console_for_progress, print_json, stop
from paceline.sync import ModelError, parse

if TYPE_CHECKING:
    from rich.console import Console

    from paceline.launch.run import ScriptRun, Summary
    from paceline.nodes import Job
    from paceline.slowness import Slowness

MOST_WORKERS = 256  # processes on one machine
MOST_PORT = 65535
SERVE_WITHIN = 3600.0  # seconds for workers to come that somebody else starts

Workers = Annotated[int, typer.Option(help=f"How many workers, 1 to {MOST_WORKERS}.")]
Servers = Annotated[int, typer.Option(help="How many servers the parameters are spread over.")]
Expression = Annotated[str, typer.Option(metavar="EXPR", help="The synchronization model; see paceline models.")]
Folder = Annotated[str | None, typer.Option(help="Where logs, traces and the file about the run go.")]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Sum in order of the workers: bsp then repeats bit by bit.")
]
Port = Annotated[
    int, typer.Option(metavar="N", help="Where the coordinator listens on loopback; without it, any port that is free.")
]
Codec = Annotated[
    str, typer.Option(metavar="EXPR", help="How gradients are encoded: none, fp16, bf16, one_bit or top_k(share=0.01).")
]
Seed = Annotated[int, typer.Option(help="For probabilistic models and random slowness.")]


def run(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script with a paceline.Optimizer.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", help="For the script.")] = None,
    workers: Workers = 2,
    servers: Servers = 1,
    sync: Expression = "bsp",
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Slow a node down, such as 'worker 3: 5x'; give it again for more."),
    ] = None,
    folder: Folder = None,
    seed: Seed = 0,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of each worker; without it, its share of the cores.")
    ] = None,
    deterministic: Deterministic = False,
    codec: Codec = "none",
    wire: Annotated[
        Literal["auto", "tcp", "shared-memory"], typer.Option(help="How nodes talk to each other.")
    ] = "auto",
    port: Port = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show what the workers print.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary alone on stdout, as one JSON document.")
    ] = False,
) -> None:
    """Train with a script on this machine: coordinator, servers and workers are started, shown and ended together.

    Everything behind SCRIPT is for the script. With --sync ddp there are workers only, kept together by torch's own
    DistributedDataParallel. Exit code 1 if the run did not end well, 130 after Ctrl-C, which ends it at once.
    """
    from paceline.launch.cores import assign
    from paceline.launch.run import ScriptRun
    from paceline.nodes import NodeError

    job = _job(workers, servers, sync, seed, deterministic=deterministic, codec=codec)
    slownesses = _slow(slow or [], workers, servers)
    where = run_folder(folder, script.stem)
    cores = assign(sorted(os.sched_getaffinity(0)), workers, servers)
    if threads is not None:
        cores = replace(cores, threads=threads)
    try:
        started = ScriptRun(
            job, script, arguments or [], where, slow=slownesses, wire=wire, port=_port(port, wire), cores=cores
        )
        interrupted = _watch(started, console_for_progress(as_json=as_json), quiet=quiet)
    except NodeError as error:
        stop(str(error))
    summary = started.summary()
    if as_json:
        print_json(summary)
    else:
        _print(summary)
    if interrupted:
        complain(f"interrupted; logs are in {where}")
        raise typer.Exit(130)
    if summary.error is not None:
        if not as_json:
            typer.echo(summary.error, err=True)
            complain(f"the run has failed; logs are in {where}")
        raise typer.Exit(1)


def serve(
    workers: Workers,
    servers: Servers = 1,
    sync: Expression = "bsp",
    folder: Folder = None,
    seed: Seed = 0,
    deterministic: Deterministic = False,
    codec: Codec = "none",
    port: Port = 0,
) -> None:
    """Start coordinator and servers alone, for workers that something else starts, such as torchrun.

    The workers find the run by PACELINE_RUN, the folder that this prints. It ends when all of them are done.
    """
    from paceline.launch.local import LocalCluster
    from paceline.nodes import DDP, NodeError

    if sync == DDP:
        stop("ddp has no servers that could be started; use torchrun alone, or paceline run --sync ddp")
    job = replace(
        _job(workers, servers, sync, seed, deterministic=deterministic, codec=codec), start_within=SERVE_WITHIN
    )
    where = run_folder(folder, "serve")
    try:
        with LocalCluster(job, "", folder=where, traces=where, port=_port(port)) as cluster:
            typer.echo(f"PACELINE_RUN={where.resolve()}")
            errors = [one.error for one in cluster.wait(None).values() if one.error is not None]
    except NodeError as error:
        stop(str(error))
    if errors:
        complain(str(errors[0]))
        raise typer.Exit(1)


def sync(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run that is under way.")],
    expression: Annotated[str, typer.Argument(metavar="EXPR", help="The model to put in force.")],
    shard: Annotated[int | None, typer.Option(metavar="K", help="On this shard only.")] = None,
) -> None:
    """Change the synchronization model of a run that is under way, on all shards or on one."""
    from paceline.launch.run_file import RunFile
    from paceline.nodes import NodeError
    from paceline.nodes.operator import change
    from paceline.wire import SocketNetwork, WireError

    _parse(expression)
    try:
        there = RunFile.read(run)
        if there.job.by_ddp:
            stop(f"{run} runs under ddp, which has no servers that could change the model")
        change(there.job, SocketNetwork(wire=there.wire, token=there.token), there.coordinator, expression, shard)
    except (NodeError, WireError) as error:
        stop(f"{run}: {error}")
    typer.echo(f"{expression} is in force{'' if shard is None else f' on shard {shard}'}")


def _watch(started: ScriptRun, console: Console, *, quiet: bool) -> bool:
    """Show it until it is over. With Ctrl-C it is over at once: was it?"""
    from paceline.launch.run import Reported, Wrote
    from paceline.observe.progress import ProgressView

    console.quiet = quiet
    try:
        with started, ProgressView(console, started.job.workers, started.job.sync) as view:
            for update in started.updates():
                if isinstance(update, Reported):
                    view.report(update.worker, update.progress)
                elif isinstance(update, Wrote):
                    view.wrote(update.worker, update.line)
    except KeyboardInterrupt:
        return True
    return False


def _print(summary: Summary) -> None:
    from rich.table import Table

    from paceline.observe.progress import mostly

    console = console_for_figures()
    table = Table(title=f"{summary.sync}: {summary.seconds:.1f} s, {summary.iterations_per_s:.1f} iterations/s")
    for column in ("worker", "iterations", "computing", "waiting", "share", "mostly for"):
        table.add_column(column, justify="right")
    for worker in summary.workers:
        times = f"{worker.computing_s:.1f} s", f"{worker.waiting_s:.1f} s", f"{worker.waiting:.0%}"
        table.add_row(str(worker.worker), f"{worker.iterations:,}", *times, mostly(worker.held_for))
    console.print(table)
    if summary.saved:
        sent, whole = summary.sent / 1e6, (summary.sent + summary.saved) / 1e6
        console.print(f"{summary.codec}: gradients took {sent:.1f} MB instead of {whole:.1f} MB ({whole / sent:.1f}x)")
    if any(worker.rounds < worker.iterations for worker in summary.workers):
        blocked = sorted(1000 * worker.blocked_s for worker in summary.workers)
        rounds = max(worker.rounds for worker in summary.workers)
        console.print(
            f"{rounds} rounds; at the end of one a worker is blocked for {blocked[0]:.1f} to {blocked[-1]:.1f} ms"
        )
    for name in summary.lost:
        held_back = next((norm for worker, norm in summary.lost_residual.items() if name == f"worker {worker}"), None)
        also = "" if held_back is None else f"; gradients of norm {held_back:.2g} that it held back are lost with it"
        console.print(f"{name} was lost{'' if summary.error else '; the others went on'}{also}")
    console.print(f"logs and traces: {summary.folder}")


def _job(workers: int, servers: int, sync: str, seed: int, *, deterministic: bool, codec: str) -> Job:
    from paceline.nodes import DDP, Job, NodeError

    if not 1 <= workers <= MOST_WORKERS:
        stop(f"--workers {workers} cannot be started here; give a number from 1 to {MOST_WORKERS}")
    if sync != DDP:
        _parse(sync)
    try:
        return Job(workers=workers, servers=servers, sync=sync, seed=seed, deterministic=deterministic, codec=codec)
    except NodeError as error:
        stop(str(error))


def _parse(expression: str) -> Any:
    try:
        return parse(expression)
    except ModelError as error:
        stop(f"{error}. See paceline models")


def _port(port: int, wire: str = "auto") -> int:
    if not 0 <= port <= MOST_PORT:
        stop(f"--port is {port}; it is a number from 0, for any that is free, to {MOST_PORT}")
    if port and wire == "shared-memory":
        stop("--port has no meaning with --wire shared-memory, which does not listen on the network")
    return port


def _slow(texts: Sequence[str], workers: int, servers: int) -> tuple[Slowness, ...]:
    from paceline.slowness import SlownessError, check
    from paceline.slowness import parse as parse_slowness

    try:
        slownesses = tuple(parse_slowness(text) for text in texts)
        check(slownesses, workers, servers)
    except SlownessError as error:
        stop(f"--slow {error}")
    return slownesses
