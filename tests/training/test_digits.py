"""Every synchronization model trains a real network on real data, with real and uneven workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.launch.run import ScriptRun, Wrote
from paceline.nodes import Job
from paceline.slowness import parse
from paceline.sync import MODELS

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"
SYNC = {
    "asp": "asp",
    "bsp": "bsp",
    "dc_asgd": "dc_asgd",
    "drop": "drop(n_t=1)",
    "dsps": "dsps(s_min=1, s_max=8)",
    "dssp": "dssp(s_low=2, s_high=8)",
    "elastic_bsp": "elastic_bsp(R=15)",
    "esync": "esync",
    "psp": "psp(c=1, b=0.5)",
    "pssp": "pssp(s=3, c=0.5)",
    "ssp": "ssp(s=3)",
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_digits_are_learnt(name: str, tmp_path: Path) -> None:
    job = Job(workers=2, shards_per_server=2, sync=SYNC[name])
    slow = [parse("worker 1: 2x"), parse("worker 0: 10% +30ms")]
    with ScriptRun(job, DIGITS, ["--epochs", "5", "--lr", "0.05"], tmp_path, slow=slow) as run:
        lines = [update.line for update in run.updates() if isinstance(update, Wrote)]
    assert run.error is None, run.error
    accuracies = [float(line.split()[2]) for line in lines if line.startswith("test accuracy")]
    assert len(accuracies) == 2
    assert max(accuracies) > 0.93  # who ends early misses updates of others, and the last ones train on alone
    assert run.summary().iterations > 0
