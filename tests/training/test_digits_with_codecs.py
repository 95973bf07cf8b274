"""Digits are learnt from a small part of the bytes, and the summary says how small."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest

from paceline.launch.run import ScriptRun, Wrote
from paceline.nodes import Job
from paceline.params.codecs import codec_of

DIGITS = Path(__file__).parents[2] / "examples" / "digits.py"
SIZE = 9_930  # parameters of its network
WORKERS, SERVERS = 2, 1


@pytest.mark.parametrize("codec", ["one_bit", "top_k(share=0.05)"])
def test_digits_are_learnt_with_a_codec(codec: str, tmp_path: Path) -> None:
    job = Job(workers=WORKERS, servers=SERVERS, codec=codec)
    with ScriptRun(job, DIGITS, ["--epochs", "15"], tmp_path) as run:
        lines = [update.line for update in run.updates() if isinstance(update, Wrote)]
    assert run.error is None, run.error
    accuracies = [float(line.split()[2]) for line in lines if line.startswith("test accuracy")]
    assert len(accuracies) == WORKERS
    assert min(accuracies) > 0.95
    summary = run.summary()
    encoder = codec_of(codec)
    assert encoder is not None
    assert summary.sent == summary.iterations * SERVERS * encoder.nbytes(ceil(SIZE / SERVERS), 4)
    assert summary.sent + summary.saved == summary.iterations * SIZE * 4
    assert summary.lost_residual.keys() <= set(range(WORKERS))
    assert len(summary.lost_residual) >= WORKERS - 1  # the last one ends the run
    assert all(norm > 0 for norm in summary.lost_residual.values())
