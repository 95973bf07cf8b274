"""A granted pull is one version of each slice, whoever pushes in the meantime."""

from __future__ import annotations

import pytest

from paceline.nodes import Job
from paceline.params import Optimizer
from tests.nodes import programs
from tests.nodes.runs import WIRES, run

SIZE = 6_000_003  # elements: more than sockets take at once


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("sync", ["bsp", "asp", "ssp(s=2)"])
@pytest.mark.parametrize("wire", WIRES)
def test_no_pull_mixes_two_versions(wire: str, sync: str, in_place: bool) -> None:
    job = Job(workers=4, servers=2, sync=sync, optimizer=Optimizer("sgd", {"lr": 1.0}))
    for result in run(wire, job, programs.constant, {"size": SIZE, "steps": 15, "in_place": in_place}):
        assert result["mixed"] == result["changed"] == 0
        assert result["iteration"] >= 15
        assert result["own"] == [not (in_place and wire == "shared-memory")] * 2
