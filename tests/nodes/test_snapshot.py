"""A snapshot is all shards as they were when it was asked for, and a run can go on from it, on every wire."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.nodes import Job, PeerLost, Snapshot, WrongRequest
from paceline.nodes import messages as m
from paceline.nodes.snapshot import number_of
from paceline.params import Optimizer
from tests.nodes import programs
from tests.nodes.runs import WIRES, run
from tests.nodes.test_equality import OPTIMIZERS, STEPS, alone

AT = 20


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("wire", WIRES)
def test_it_is_of_one_moment_and_a_run_goes_on_from_it(wire: str, name: str, tmp_path: Path) -> None:
    optimizer, make = OPTIMIZERS[name]
    expected = alone(make, 3)
    file = str(tmp_path / "snapshot")
    job = Job(workers=3, servers=2, optimizer=optimizer, deterministic=True)
    for result in run(wire, job, programs.snapshots, {"steps": STEPS, "at": AT, "file": file}):
        assert result == [0, STEPS, expected[-1]]
    taken = programs.read_snapshot(file)
    assert taken.clock == taken.steps == AT
    assert isinstance(taken.values, torch.Tensor)
    assert programs.digest(taken.values) == expected[AT - 1]
    other = Job(workers=3, servers=3, optimizer=optimizer, deterministic=True)
    for result in run(wire, other, programs.snapshots, {"steps": STEPS, "at": -1, "again": file}):
        assert result == [AT, STEPS, expected[-1]]


@pytest.mark.parametrize("wire", WIRES)
def test_it_does_not_change_on_its_way(wire: str) -> None:
    """More than fits into a socket, while others push."""
    job = Job(workers=2, servers=2, sync="asp", optimizer=Optimizer("sgd", {"lr": 1e-3}))
    assert run(wire, job, programs.constant_snapshots, {"size": 5_000_000, "steps": 15}) == [0, 0]


def test_a_row_that_the_optimizer_does_not_know_is_refused(tmp_path: Path) -> None:
    file = str(tmp_path / "snapshot")
    programs.write_snapshot(Snapshot(programs.flat(programs.network()), {}, {}, 3, 3), file)
    job = Job(workers=1, servers=1, optimizer=OPTIMIZERS["adam"][0])
    with pytest.raises((WrongRequest, PeerLost), match=r"adam needs exp_avg of .* elements; there is no one"):
        run("memory", job, programs.snapshots, {"steps": 4, "at": -1, "again": file})


def test_numbers_of_strange_types_are_refused() -> None:
    assert number_of(torch.tensor(3)) == m.Number("int64", 3)
    with pytest.raises(WrongRequest, match="complex64"):
        number_of(torch.tensor(1j))
