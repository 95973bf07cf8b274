"""One run of a comparison: a script under one model with one seed, until it is good enough or its time is over."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from time import monotonic

from paceline.compare.decided import decided, waited
from paceline.compare.outcome import Outcome, WorkerShare, failed
from paceline.compare.plan import Comparison, Turn, parts_of
from paceline.launch.cores import assign
from paceline.launch.run import Measured, Reported, ScriptRun, WorkerSummary
from paceline.nodes import Job, NodeError
from paceline.slowness import parse

Watch = Callable[[Measured], None]
SLACK = 30.0  # seconds beyond all others, after which a run is ended that says nothing any more
SILENT = "nothing was measured; let the script call paceline.report(accuracy=...) now and then"


def attempt(comparison: Comparison, turn: Turn, folder: Path, watch: Watch) -> Outcome:
    """Raises nothing of what goes wrong in it: that is its outcome's error."""
    sync, codec = parts_of(turn.sync)
    job = Job(workers=comparison.workers, servers=comparison.servers, sync=sync, seed=turn.seed, codec=codec)
    cores = assign(sorted(os.sched_getaffinity(0)), comparison.workers, comparison.servers)
    slow = [parse(text) for text in comparison.slow]
    curve: list[tuple[float, float]] = []
    try:
        run = ScriptRun(job, Path(comparison.script), turn.arguments, folder, slow=slow, cores=cores)
        with run:
            _train(run, comparison, curve, watch)
    except NodeError as error:
        return failed(turn, str(error), str(folder))
    return _outcome(comparison, turn, run, curve, run.wrong() or (None if curve else SILENT))


def _train(run: ScriptRun, comparison: Comparison, curve: list[tuple[float, float]], watch: Watch) -> None:
    """Until it is over; what was measured goes into the curve."""
    longest = comparison.longest
    patience = Timer(run.job.start_within + longest + SLACK, run.end)
    patience.daemon = True
    patience.start()
    begun: float | None = None
    try:
        for update in run.updates():
            if isinstance(update, Reported) and begun is None:
                begun = monotonic()
            if begun is not None and monotonic() - begun > longest:
                run.end()
            if not isinstance(update, Measured) or (curve and update.seconds > longest):
                continue
            curve.append((update.seconds, update.accuracy))
            watch(update)
            enough = comparison.target is not None and update.accuracy >= comparison.target
            if update.seconds > longest or (enough and comparison.seconds is None):
                run.end()
    finally:
        patience.cancel()


def _outcome(
    comparison: Comparison, turn: Turn, run: ScriptRun, curve: list[tuple[float, float]], error: str | None
) -> Outcome:
    target = comparison.target
    reached = None if target is None else next((time for time, right in curve if right >= target), None)
    workers = run.summary().workers
    counted = decided(run.folder)
    in_rounds = any(0 < worker.rounds < worker.iterations for worker in workers)
    waits = waited(run.folder) if in_rounds else {}
    return Outcome(
        sync=turn.sync,
        seed=turn.seed,
        arguments=turn.arguments,
        value=turn.value,
        seconds=max((worker.computing_s + worker.waiting_s for worker in workers), default=0.0),
        seconds_to_target=reached,
        accuracy=curve[-1][1] if curve else None,
        iterations=sum(worker.iterations for worker in workers),
        samples_per_s=_per_second(workers, lambda worker: worker.samples),
        bytes_per_s=_per_second(workers, lambda worker: worker.sent + worker.received) or 0.0,
        workers=[_share(worker, waits.get(worker.worker)) for worker in workers],
        held_pulls=None if counted is None else counted.held_pulls,
        staleness=None if counted is None else counted.staleness,
        dropped=None if counted is None else counted.dropped,
        lost=run.lost,
        curve=curve,
        folder=str(run.folder),
        error=error,
    )


def _per_second(workers: Sequence[WorkerSummary], figure: Callable[[WorkerSummary], int | None]) -> float | None:
    """Of all workers together, each by the time that it has trained."""
    rates = []
    for worker in workers:
        amount, seconds = figure(worker), worker.computing_s + worker.waiting_s
        if amount is not None and seconds > 0:
            rates.append(amount / seconds)
    return sum(rates) if rates else None


def _share(worker: WorkerSummary, for_others: float | None) -> WorkerShare:
    return WorkerShare(
        worker.worker,
        worker.iterations,
        worker.computing_s,
        worker.waiting_s,
        1 - worker.waiting,
        worker.samples,
        worker.sent,
        worker.received,
        worker.rounds,
        worker.blocked_s,
        for_others,
        worker.saved,
    )
