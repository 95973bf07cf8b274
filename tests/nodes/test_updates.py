"""Every gradient is applied once: after so many updates the parameters are what so many updates make of them."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.nodes import Job
from paceline.params import Optimizer
from tests.nodes import programs
from tests.nodes.runs import WIRES, run

ONE = Optimizer("sgd", {"lr": 1.0})


def check(wire: str, sync: str, update: Any, size: int) -> None:
    immediate = update == "immediate" or (update is None and sync.split("(")[0] not in ("bsp", "drop", "psp", "esync"))
    arguments = {"size": size, "steps": 12, "step": 0.25 if immediate else 1.0}
    results = run(wire, Job(workers=4, servers=2, sync=sync, update=update, optimizer=ONE), programs.counted, arguments)
    assert [result["wrong"] for result in results] == [[]] * 4
    others_wait = sync.split("(")[0] not in ("asp", "psp")  # else a late worker's first version may be past the last
    assert (all if others_wait else any)(result["compared"] for result in results)


@pytest.mark.parametrize("update", [None, "round", "immediate"])
@pytest.mark.parametrize(
    "sync", ["bsp", "asp", "ssp(s=2)", "pssp(s=1, c=0.5)", "drop(n_t=4)", "elastic_bsp(R=3)", "psp(c=3, scaling=mean)"]
)
def test_no_gradient_is_lost_or_applied_twice_under_any_model(sync: str, update: Any) -> None:
    check("memory", sync, update, 1000)


@pytest.mark.parametrize("size", [1000, 400_000])
@pytest.mark.parametrize(("sync", "update"), [("bsp", None), ("ssp(s=2)", "round"), ("asp", None)])
@pytest.mark.parametrize("wire", WIRES)
def test_no_gradient_is_lost_or_applied_twice_on_any_wire(wire: str, sync: str, update: Any, size: int) -> None:
    """Of both sizes: those that go with their message, and those that go by reference where that can be."""
    check(wire, sync, update, size)


@pytest.mark.parametrize("size", [1000, 400_000])
@pytest.mark.parametrize("sync", ["bsp", "ssp(s=2)", "ssp(s=5, release=soft)"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_gradient_is_part_of_its_own_round(wire: str, sync: str, size: int) -> None:
    """Also where its worker goes on, and needs the memory for the next one before the round has closed."""
    job = Job(workers=3, servers=2, sync=sync, update="round", optimizer=Optimizer("sgd", {"lr": 1.0}))
    for result in run(wire, job, programs.numbered, {"size": size, "steps": 12}):
        assert result["wrong"] == []
        assert result["compared"] > 0
