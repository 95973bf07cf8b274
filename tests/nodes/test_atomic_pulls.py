"""A granted pull is one version of each slice, whoever pushes in the meantime."""

from __future__ import annotations

import pytest

from paceline.nodes import Job
from paceline.params import Optimizer
from tests.nodes import programs
from tests.nodes.runs import WIRES, run


@pytest.mark.parametrize("sync", ["asp", "ssp(s=2)"])
@pytest.mark.parametrize("wire", WIRES)
def test_no_pull_mixes_two_versions(wire: str, sync: str) -> None:
    job = Job(workers=4, servers=2, sync=sync, optimizer=Optimizer("sgd", {"lr": 1.0}))
    results = run(wire, job, programs.constant, {"size": 6_000_003, "steps": 15})  # more than sockets take at once
    assert [result["mixed"] for result in results] == [0] * 4
    assert all(result["iteration"] >= 15 for result in results)
