"""What came of one run, and of all runs of a model: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from statistics import fmean, median

from msgspec import Struct

from paceline.compare.plan import Turn


class WorkerShare(Struct, frozen=True):
    """One worker of a run. `computing` is the share of its time that it computed and did not wait.

    Under esync a round has several iterations. Medians of rounds: `blocked_s` is how long it was blocked at the end of
    one, until it had new parameters, and `for_others_s` how much of that passed until the last had sent what it did,
    where that goes to servers.
    """

    worker: int
    iterations: int
    computing_s: float
    waiting_s: float
    computing: float
    samples: int | None
    sent: int
    received: int
    rounds: int = 0
    blocked_s: float = 0.0
    for_others_s: float | None = None
    saved: int = 0  # bytes of gradients that a codec made unnecessary


class Outcome(Struct, frozen=True, kw_only=True):
    """A row: one model with one seed. What is None is not known, or cannot be for this model.

    `accuracy` is the last one that was measured, and `curve` all of them, with their seconds since the first step was
    possible. Bytes are what workers send and receive, all together.
    """

    sync: str
    seed: int
    arguments: tuple[str, ...] = ()
    value: str | None = None  # of the grid
    seconds: float = 0.0
    seconds_to_target: float | None = None
    accuracy: float | None = None
    iterations: int = 0
    samples_per_s: float | None = None
    bytes_per_s: float = 0.0
    workers: list[WorkerShare] = []
    held_pulls: int | None = None
    staleness: float | None = None
    dropped: int | None = None
    lost: list[str] = []
    curve: list[tuple[float, float]] = []
    folder: str = ""
    error: str | None = None

    @property
    def score(self) -> float:
        """The sooner at the target the better; of those that never are, the better in the end; last who has failed."""
        if self.error is not None or self.accuracy is None:
            return -inf
        return self.accuracy - 1e9 if self.seconds_to_target is None else -self.seconds_to_target


class Spread(Struct, frozen=True):
    """Of several seeds the median, the least and the most. None: not in that many of them."""

    median: float | None
    low: float | None
    high: float | None


class Blocking(Struct, frozen=True):
    """Where workers have rounds of several iterations: seconds at the end of one, of the worker that waits longest.

    Beside it, how long an iteration of the fastest worker takes, and how many rounds there were. Of several runs the
    medians.
    """

    for_others: float | None
    until_parameters: float
    iteration: float
    rounds: float


class Standing(Struct, frozen=True, kw_only=True):
    """One model, over all its seeds. `times_as_fast` is to the target, in comparison with the baseline."""

    sync: str
    value: str | None  # of the grid
    runs: int
    failed: int
    seconds_to_target: Spread
    times_as_fast: float | None
    accuracy: Spread
    samples_per_s: float | None
    bytes_per_s: float | None
    computing: list[float]  # by worker
    held_pulls: float | None
    staleness: float | None
    blocking: Blocking | None = None
    encoded: float | None = None  # of the bytes that gradients would have taken, the share that they took

    @property
    def fate(self) -> str | None:
        """Why there are no figures, if there are none."""
        if self.failed < self.runs:
            return None
        return "failed" if self.runs else "not run"


def failed(turn: Turn, error: str, folder: str = "") -> Outcome:
    return Outcome(
        sync=turn.sync, seed=turn.seed, arguments=turn.arguments, value=turn.value, folder=folder, error=error
    )


def best(tried: Iterable[Outcome]) -> dict[str, str]:
    """For each model the value of the grid with which it was best. Of equals the first one counts."""
    chosen: dict[str, Outcome] = {}
    for outcome in tried:
        if outcome.sync not in chosen or outcome.score > chosen[outcome.sync].score:
            chosen[outcome.sync] = outcome
    return {model: outcome.value for model, outcome in chosen.items() if outcome.value is not None}


def standings(outcomes: Sequence[Outcome], models: Sequence[str], baseline: str) -> list[Standing]:
    """In the order of the models."""
    of = {model: [one for one in outcomes if one.sync == model] for model in models}
    well = {model: [one for one in rows if one.error is None] for model, rows in of.items()}
    times = {model: spread([one.seconds_to_target for one in rows]) for model, rows in well.items()}
    return [
        Standing(
            sync=model,
            value=next((one.value for one in of[model]), None),
            runs=len(of[model]),
            failed=len(of[model]) - len(rows),
            seconds_to_target=times[model],
            times_as_fast=_ratio(times[baseline].median, times[model].median),
            accuracy=spread([one.accuracy for one in rows]),
            samples_per_s=_median(rows, lambda one: one.samples_per_s),
            bytes_per_s=_median(rows, lambda one: one.bytes_per_s),
            computing=_by_worker(rows),
            held_pulls=_median(rows, lambda one: one.held_pulls),
            staleness=_median(rows, lambda one: one.staleness),
            blocking=_blocking(rows),
            encoded=_median(rows, _encoded),
        )
        for model, rows in well.items()
    ]


def spread(values: Sequence[float | None]) -> Spread:
    """What was never reached counts as later than all else."""
    known = [inf if value is None else value for value in values]
    if not known:
        return Spread(None, None, None)
    found = (median(known), min(known), max(known))
    return Spread(*(None if value == inf else value for value in found))


def _ratio(baseline: float | None, mine: float | None) -> float | None:
    return None if baseline is None or not mine else baseline / mine


def _median(rows: Sequence[Outcome], figure: Callable[[Outcome], float | None]) -> float | None:
    known = [value for value in map(figure, rows) if value is not None]
    return median(known) if known else None


def _by_worker(rows: Sequence[Outcome]) -> list[float]:
    shares: dict[int, list[float]] = {}
    for outcome in rows:
        for worker in outcome.workers:
            shares.setdefault(worker.worker, []).append(worker.computing)
    return [fmean(shares[worker]) for worker in sorted(shares)]


def _encoded(outcome: Outcome) -> float | None:
    sent, saved = (sum(getattr(worker, what) for worker in outcome.workers) for what in ("sent", "saved"))
    return sent / (sent + saved) if saved else None


def _blocking(rows: Sequence[Outcome]) -> Blocking | None:
    found = [
        Blocking(
            max((worker.for_others_s for worker in one.workers if worker.for_others_s is not None), default=None),
            max(worker.blocked_s for worker in one.workers),
            min(worker.computing_s / worker.iterations for worker in one.workers),
            max(worker.rounds for worker in one.workers),
        )
        for one in rows
        if any(0 < worker.rounds < worker.iterations for worker in one.workers)
        and all(worker.iterations for worker in one.workers)
    ]
    if not found:
        return None
    others = [one.for_others for one in found if one.for_others is not None]
    return Blocking(
        median(others) if others else None,
        median(one.until_parameters for one in found),
        median(one.iteration for one in found),
        median(one.rounds for one in found),
    )


def band(curves: Sequence[Sequence[tuple[float, float]]], at: Sequence[float]) -> Mapping[str, list[float]]:
    """At each time the median, the least and the most of what the runs had last measured; 0 before they had."""
    values = [[_last(curve, time) for curve in curves] for time in at]
    return {
        "median": [median(some) for some in values],
        "low": [min(some) for some in values],
        "high": [max(some) for some in values],
    }


def _last(curve: Sequence[tuple[float, float]], time: float) -> float:
    return next((accuracy for seconds, accuracy in reversed(curve) if seconds <= time), 0.0)
