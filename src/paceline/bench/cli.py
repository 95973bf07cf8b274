"""`paceline bench`: one command for each benchmark, and `all`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from paceline.bench import machine as machines
from paceline.bench import planners as planning
from paceline.bench import sim as sims
from paceline.bench import sim_vs_real as versus
from paceline.bench import slicing as slicings
from paceline.bench import slow_server as slow_servers
from paceline.bench import step as steps
from paceline.bench import wire as wires
from paceline.bench.rivals import KNOWN, USUAL, Rival, RivalError

NAMES = tuple(dict.fromkeys(rival.name for rival in KNOWN))

app = typer.Typer(
    help="Measure the figures that README and docs quote. Example: paceline bench planners --json",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON row for each line of the table.")]
Repeats = Annotated[int, typer.Option(min=1, help="Of how many repeats to show the median.")]


@app.command(epilog="Example: paceline bench planners --repeats 3")
def planners(repeats: Repeats = 7, as_json: AsJson = False) -> None:
    """How long ElasticBSP's planners take, beside the paper's table II and beside numpy.sort of the same points."""
    rows = list(_progress(planning.measure(repeats), sum(map(len, planning.PAPER.values())) + 1, "planners"))
    if as_json:
        _print_rows(rows)
        return
    table = _table("ElasticBSP's planners", "planner", "workers", "R", "ours", "paper", "times faster", "of numpy.sort")
    for row in rows:
        faster = "" if row.times_faster is None else f"{row.times_faster:,.0f}x"
        paper = "" if row.paper_microseconds is None else _time(row.paper_microseconds)
        cells = f"{row.workers:,}", str(row.horizon), _time(row.microseconds), paper, faster, f"{row.of_sort:.2f}"
        table.add_row(row.planner, *cells)
    Console().print(table)


@app.command(epilog="Example: paceline bench machine --events 50000")
def machine(
    events: Annotated[int, typer.Option(min=1000, help="How many events to hand to each shard.")] = 200_000,
    repeats: Repeats = 5,
    as_json: AsJson = False,
) -> None:
    """What an event costs a shard's machine under each model, from 10 to 10 000 workers, on one core."""
    models = list(_progress(machines.measure(events, repeats), len(machines.EXPRESSIONS), "machine"))
    if as_json:
        _print_rows(row for rows in models for row in rows)
        return
    sizes = [f"{workers:,}" for workers in machines.SIZES]
    table = _table("µs per event, by workers", "model", *sizes, "growth", "events/s, least", "planning")
    for rows in models:
        table.add_row(
            rows[0].model,
            *(f"{row.microseconds:.2f}" for row in rows),
            f"{max(row.growth for row in rows):.2f}x",
            f"{min(row.events_per_second for row in rows):,.0f}",
            ", ".join(f"{row.planning:.2f}" for row in rows) if rows[0].planning else "",
        )
    Console().print(table)


@app.command(epilog="Example: paceline bench wire --workers 4 --megabytes 100 --system gloo")
def wire(
    workers: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, help="How many workers; give it again for more. Without it, 1, 2, 4 and 8."),
    ] = None,
    megabytes: Annotated[
        list[float] | None,
        typer.Option(
            metavar="N",
            min=0.001,
            max=10_000,
            help="Million bytes of parameters; give it again for more. Without it, 1 and 100.",
        ),
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"What to measure beside memcpy, of {', '.join(NAMES)}; give it again for more."
        ),
    ] = None,
    servers: Annotated[int, typer.Option(min=1, help="How many servers, for the systems that have any.")] = 1,
    repeats: Repeats = 5,
    as_json: AsJson = False,
) -> None:
    """How fast gradients and parameters move on this machine, beside memcpy and other systems, and a 4 KB round trip.

    One round: each worker pushes its gradient, they are summed and applied, and each worker ends with the new
    parameters. GB/s counts what workers push and pull. Systems take turns; shown are medians.
    """
    counts, sizes = workers or [1, 2, 4, 8], megabytes or [1.0, 100.0]
    systems = _systems(system, counts, servers)
    table = _table("Pushed and pulled", "system", "transport", "workers", "servers", "MB", "GB/s", "of memcpy", "RTT")
    try:
        for rows in _progress(
            wires.measure(systems, counts, sizes, servers, repeats), len(counts) * len(sizes), "wire"
        ):
            if as_json:
                _print_rows(rows)
            for row in rows:
                size = f"{row.workers}", f"{row.servers}", f"{row.megabytes:g}"
                speed = f"{row.gb_per_s:.2f}", f"{row.of_memcpy:.2f}", _time(row.rtt_us)
                table.add_row(row.system, row.transport, *size, *speed)
    except RivalError as error:
        typer.echo(f"paceline: {error}", err=True)
        raise typer.Exit(1) from None
    if not as_json:
        Console().print(table)


@app.command(epilog="Example: paceline bench slicing --workers 2")
def slicing(
    workers: Annotated[int, typer.Option(min=1, help="How many workers.")] = 4,
    servers: Annotated[int, typer.Option(min=1, help="How many servers.")] = 4,
    wire: Annotated[slicings.Wire, typer.Option(help="How the nodes talk to each other.")] = "auto",
    repeats: Repeats = 7,
    as_json: AsJson = False,
) -> None:
    """What a round of AlexNet costs with a barrier, with overlap, and with elastic slicing, as FluentPS's figure 6.

    Each server is bound to one core.
    """
    try:
        rows = list(slicings.measure(repeats, workers, servers, wire))
    except RivalError as error:
        typer.echo(f"paceline: {error}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        _print_rows(rows)
        return
    table = _table("A round of AlexNet", "", "slicing", "wire", "workers", "servers", "ms", "times faster", "fullest")
    for row in rows:
        cells = row.slicing, row.wire, f"{row.workers}", f"{row.servers}", f"{row.milliseconds:.0f}"
        table.add_row(row.mode, *cells, f"{row.times_faster:.2f}", f"{row.fullest:.2f} of the mean")
    Console().print(table)


@app.command(epilog="Example: paceline bench step --net mlp --workers 2")
def step(
    net: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"What to train, of {', '.join(steps.NETS)}; give it again for more. Without it, all."
        ),
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=2, help="How many workers; give it again for more. Without it, 2 and 4."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where workers compute: cpu, or cuda, which they share.")] = "cpu",
    repeats: Repeats = 7,
    as_json: AsJson = False,
) -> None:
    """What Paceline adds to a training step over no communication at all, beside DDP, with and without overlap."""
    for name in net or ():
        if name not in steps.NETS:
            raise typer.BadParameter(f"there is no {name!r}; there are {', '.join(steps.NETS)}", param_hint="--net")
    nets, counts = [name for name in steps.NETS if not net or name in net], workers or [2, 4]
    table = _table(
        f"Milliseconds of a step, on {device}", "net", "workers", "system", "a step", "added", "of what DDP adds"
    )
    try:
        for rows in _progress(steps.measure(nets, counts, repeats, device), len(nets) * len(counts), "step"):
            if as_json:
                _print_rows(rows)
            for row in rows:
                added = ("", "") if row.system == "none" else (f"{row.added_ms:.1f}", f"{row.of_ddp:.2f}")
                table.add_row(row.net, f"{row.workers}", row.system, f"{row.step_ms:.1f}", *added)
    except RivalError as error:
        typer.echo(f"paceline: {error}", err=True)
        raise typer.Exit(1) from None
    if not as_json:
        Console().print(table)


@app.command(epilog="Example: paceline bench sim --iterations 1000000 --workers 1000 --repeats 1")
def sim(
    iterations: Annotated[int, typer.Option(min=1000, help="How many iterations of all workers together.")] = 100_000,
    workers: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, help="How many workers; give it again for more. Without it, 10 to 10 000."),
    ] = None,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """How fast the simulator is, and how much memory it takes, from 10 to 10 000 workers, on one core."""
    rows = sims.measure(iterations, repeats, workers or sims.SIZES)
    if as_json:
        _print_rows(rows)
        return
    table = _table(
        "Simulated", "workers", "iterations", "seconds", "µs per iteration", "events/s", "growth", "KB/worker"
    )
    for row in rows:
        speed = f"{row.microseconds_per_iteration:.1f}", f"{row.events_per_second:,.0f}", f"{row.growth:.2f}x"
        memory = f"{row.kilobytes_per_worker:.1f}"
        table.add_row(f"{row.workers:,}", f"{row.iterations:,}", f"{row.seconds:.2f}", *speed, memory)
    Console().print(table)


@app.command(name="sim-vs-real", epilog="Example: paceline bench sim-vs-real --sync bsp --seconds 5")
def sim_vs_real(
    sync: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPR", help="A model; give it again for more. Without it, a selection of five."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1.0, help="How long to train under each.")] = 10.0,
    as_json: AsJson = False,
) -> None:
    """What the simulator predicts for four uneven real workers, beside what they did."""
    expressions = sync or list(versus.MODELS)
    table = _table("Milliseconds per iteration", "model", "real", "predicted", "off", "held pulls", "predicted", "off")
    for row in _progress(versus.measure(expressions, seconds), len(expressions), "sim-vs-real"):
        if as_json:
            _print_rows([row])
        pulls = f"{row.held_pulls}", f"{row.predicted_held}", f"{row.held_off:+.1%}"
        table.add_row(row.model, f"{row.ms_per_iteration:.2f}", f"{row.predicted_ms:.2f}", f"{row.off:+.1%}", *pulls)
    if not as_json:
        Console().print(table)


@app.command(name="state-server", epilog="Example: paceline bench state-server --workers 1000")
def state_server(
    workers: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=1, help="How many workers; give it again for more. Without it, 10, 100, 1 000."),
    ] = None,
    repeats: Repeats = 5,
    as_json: AsJson = False,
) -> None:
    """What a query of a worker costs ESync's State Server, over real sockets, from 10 to 1 000 registered workers."""
    from paceline.bench import state_server as queries  # it needs torch, which takes its time

    sizes = workers or queries.SIZES
    rows = list(_progress(queries.measure(repeats, sizes), len(sizes), "state-server"))
    if as_json:
        _print_rows(rows)
        return
    table = _table("A query, in the State Server's processor time", "workers", "a query", "the decision", "growth")
    for row in rows:
        table.add_row(
            f"{row.workers:,}", _time(row.microseconds), _time(row.machine_microseconds), f"{row.growth:.2f}x"
        )
    Console().print(table)


@app.command(name="slow-server", epilog="Example: paceline bench slow-server --repeats 1 --iterations 100")
def slow_server(
    slow: Annotated[str, typer.Option(metavar="TEXT", help="How servers are slow.")] = slow_servers.SLOW,
    iterations: Annotated[int, typer.Option(min=1, help="How long to train each time.")] = 200,
    repeats: Repeats = 5,
    as_json: AsJson = False,
) -> None:
    """What rare late answers of servers cost bsp, and psp with partial pulling, in time and in final accuracy."""
    rows = slow_servers.measure(repeats, iterations, slow)
    if as_json:
        _print_rows(rows)
        return
    table = _table("Late answers", "model", "slow", "ms/iteration", "lost", "over bsp", "accuracy", "dropped")
    for row in rows:
        shares = f"{row.lost:+.1%}", f"{row.over_bsp:+.1%}", f"{row.accuracy:.3f}", f"{row.dropped:.1%}"
        table.add_row(row.sync, row.slow, f"{row.ms_per_iteration:.1f}", *shares)
    Console().print(table)


@app.command(name="all", epilog="Example: paceline bench all")
def everything(as_json: AsJson = False) -> None:
    """Run every benchmark."""
    planners(as_json=as_json)
    machine(as_json=as_json)
    wire(as_json=as_json)
    slicing(as_json=as_json)
    step(as_json=as_json)
    sim(as_json=as_json)
    sim_vs_real(as_json=as_json)
    state_server(as_json=as_json)
    slow_server(as_json=as_json)


def _systems(names: Sequence[str] | None, workers: Sequence[int], servers: int) -> list[Rival]:
    """What to measure. What cannot be is told by name; it is an error if nothing but that was asked for."""
    for name in names or ():
        if name not in NAMES:
            raise typer.BadParameter(
                f"there is no system {name!r}; there are {', '.join(NAMES)}", param_hint="--system"
            )
    asked = [rival for rival in KNOWN if rival.name in names] if names else list(USUAL)
    unfit = {(rival.name, count): rival.unfit(count, servers) for rival in asked for count in workers}
    for name, why in dict.fromkeys((name, why) for (name, _), why in unfit.items() if why):
        counts = ", ".join(str(count) for (other, count), reason in unfit.items() if (other, reason) == (name, why))
        typer.echo(f"paceline: {name} is not measured with {counts} workers: {why}", err=True)
    if all(unfit.values()):
        raise typer.Exit(2)
    return asked


def _progress(rows: Iterable[Any], total: int, what: str) -> Iterable[Any]:
    """Shows on stderr how far it is, where that is a terminal."""
    console = Console(stderr=True)
    return track(rows, what, total=total, console=console, transient=True, disable=not console.is_terminal)


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def _print_rows(rows: Iterable[Any]) -> None:
    for row in rows:
        typer.echo(msgspec.json.encode(row).decode())
