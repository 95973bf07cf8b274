"""Comparisons that nobody has run, for what is made of them."""

from __future__ import annotations

from typing import Any

from paceline.compare.outcome import Outcome, WorkerShare, best, standings
from paceline.compare.plan import Comparison, Grid
from paceline.compare.whole import Report

MODELS = (
    "ddp",
    "bsp",
    "asp",
    "ssp(s=3)",
    "dsps(s_min=1, s_max=8)",
    "dssp(s_low=2, s_high=8)",
    "drop(n_t=3)",
    "pssp(s=3, c=0.5)",
    "pssp(s=3, alpha=0.6)",
    "elastic_bsp",
    "psp(c=3, b=0.9, tau_push=0.01, tau_pull=0.01)",
    "esync",
    "ssp(s=3, release=soft)",
    "asp2",
)


def outcome(sync: str, seed: int, reached: float | None = 10.0, accuracy: float | None = 0.9, **more: Any) -> Outcome:
    shares = [WorkerShare(n, 100, 5.0 + n, 5.0 - n, (5.0 + n) / 10, 3200, 1000, 2000) for n in range(4)]
    held = None if sync == "ddp" else 12
    values: dict[str, Any] = {
        "seconds": 12.0,
        "samples_per_s": 1234.5,
        "bytes_per_s": 5.4e6,
        "workers": shares,
        "held_pulls": held,
        "staleness": None if held is None else 1.25,
        "curve": [(0.5, 0.1), (reached or 12.0, accuracy or 0.0)],
    }
    return Outcome(sync=sync, seed=seed, seconds_to_target=reached, accuracy=accuracy, **{**values, **more})


def report(
    rows: list[Outcome], tried: list[Outcome] | None = None, planned: int | None = None, **settings: Any
) -> Report:
    models = tuple(dict.fromkeys(row.sync for row in rows))
    seeds = len({row.seed for row in rows})
    given: dict[str, Any] = {"script": "train.py", "target": 0.8, "seeds": seeds, "models": models, **settings}
    comparison = Comparison(**given)
    chosen = best(tried or [])
    found = standings(rows, comparison.models, comparison.baseline)
    ended = len(rows) + len(tried or [])
    command = comparison.command()
    return Report(command, comparison, {"torch": "2.13"}, chosen, found, rows, tried or [], planned or ended)


GRID = Grid("--lr", ("0.1", "0.2"))
