"""esync with real workers against bsp, and against DiLoCo in a single process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from paceline.launch.run import ScriptRun
from paceline.nodes import Job
from paceline.params import OptimizerError
from paceline.slowness import parse
from paceline.sync import parse as parse_model
from paceline.sync.models.esync import ESync
from paceline.training.local import check_outer
from tests.training import replicas

SCRIPT = Path(replicas.__file__)
ROUNDS = 8


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def ran(
    folder: Path,
    sync: str,
    inner: str,
    outer: str = "mean",
    *,
    deterministic: bool = True,
    slow: tuple[str, ...] = (),
    rounds: int = ROUNDS,
    sooner: int = 0,
    in_place: bool = False,
) -> list[dict[str, Tensor]]:
    """What the two workers of a run have saved."""
    folder.mkdir()
    job = Job(workers=2, servers=2, sync=sync, deterministic=deterministic)
    arguments = [str(rounds), inner, outer, str(folder), str(sooner), str(in_place)]
    with ScriptRun(job, SCRIPT, arguments, folder / "run", slow=[parse(text) for text in slow]) as run:
        list(run.updates())
    assert run.error is None, run.error
    assert run.lost == []
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def diloco(steps: int, inner: str, outer: str, rate: float = 1.0, sooner: int = 0) -> Tensor:
    """The same in one process, to the letter of DiLoCo's algorithm 1: the parameters when each round begins.

    In the last rounds there is one worker only, if the other ends `sooner`.
    """
    shared = replicas.network()
    step_outside = replicas.nesterov(shared) if outer == "nesterov" else torch.optim.SGD(shared.parameters(), lr=rate)
    copies = [replicas.network() for _ in range(2)]
    steps_inside = [replicas.INNER[inner](copy) for copy in copies]
    begins, iteration = [replicas.flat(shared)], 0
    for round_ in range(ROUNDS):
        there = 1 if round_ >= ROUNDS - sooner else 2
        changes: list[list[Tensor]] = []
        for rank, (copy, step_inside) in enumerate(zip(copies[:there], steps_inside[:there], strict=True)):
            copy.load_state_dict(shared.state_dict())
            for nth in range(iteration, iteration + steps):

                def closure(copy: torch.nn.Module = copy, rank: int = rank, nth: int = nth) -> Tensor:
                    copy.zero_grad()
                    found = replicas.loss(copy, rank, nth)
                    found.backward()  # type: ignore[no-untyped-call]
                    return found

                step_inside.step(closure)  # type: ignore[arg-type]
            changes.append(
                [p.detach() - q.detach() for p, q in zip(shared.parameters(), copy.parameters(), strict=True)]
            )
        iteration += steps
        for p, *all_changes in zip(shared.parameters(), *changes, strict=True):
            p.grad = sum(all_changes) / there
        step_outside.step()
        begins.append(replicas.flat(shared))
    return torch.stack(begins)


@pytest.mark.parametrize("inner", ["momentum", "adam"])
def test_with_one_local_step_it_is_bsp_to_the_bit(inner: str, tmp_path: Path) -> None:
    ours = ran(tmp_path / "esync", "esync(max_steps=1)", inner)
    theirs = ran(tmp_path / "bsp", "bsp", inner)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine["begins"], other["begins"])
        assert len(mine["begins"]) == ROUNDS + 1
        assert not torch.equal(mine["begins"][0], mine["begins"][1])


@pytest.mark.parametrize(
    ("sync", "inner", "outer", "sooner", "in_place"),
    [
        ("esync(steps=3)", "adam", "nesterov", 0, False),
        ("esync(steps=3)", "adam", "nesterov", 3, True),
        ("esync(steps=2, rate=0.5)", "lbfgs", "mean", 0, False),
        ("esync(steps=1, rate=0.5)", "momentum", "mean", 3, False),
        ("esync(steps=3, aggregate=all_reduce)", "adam", "nesterov", 3, False),
        ("esync(steps=3, aggregate=all_reduce)", "adam", "nesterov", 0, True),
    ],
)
def test_with_fixed_steps_it_is_diloco_to_the_bit(
    sync: str, inner: str, outer: str, sooner: int, in_place: bool, tmp_path: Path
) -> None:
    model = parse_model(sync)
    assert isinstance(model, ESync)
    assert model.steps is not None
    expected = diloco(model.steps, inner, outer, model.rate, sooner)
    found = ran(tmp_path / "run", sync, inner, outer, sooner=sooner, in_place=in_place)
    for mine, rounds in zip(found, (ROUNDS, ROUNDS - sooner), strict=True):
        assert mine["steps"].tolist() == [model.steps] * rounds
        assert torch.equal(mine["begins"], expected[: rounds + 1])


@pytest.mark.parametrize("query", ["blocking", "nonblocking"])
def test_it_follows_a_worker_that_gets_slower(query: str, tmp_path: Path) -> None:
    """The fast one does more local steps as soon as the other is slow, and rounds stay alike for both."""
    slow = ("worker 0: +4ms", "worker 1: +8ms", "worker 1: +400ms from 50ms")
    fast, other = ran(tmp_path / "run", f"esync(query={query})", "sgd", deterministic=False, slow=slow, rounds=8)
    assert torch.equal(fast["begins"], other["begins"])
    assert fast["steps"].max() >= 10  # while at first there was time for two or three
    assert other["steps"][-2:].max() <= 2


def test_an_outer_optimizer_must_be_of_the_same_parameters() -> None:
    model, other = replicas.network(), replicas.network()
    inner = replicas.INNER["sgd"](model)
    check_outer(replicas.nesterov(model), inner, ESync())
    with pytest.raises(OptimizerError, match="other parameters"):
        check_outer(replicas.nesterov(other), inner, ESync())
    with pytest.raises(OptimizerError, match=r"rate=0\.5"):
        check_outer(replicas.nesterov(model), inner, ESync(rate=0.5))
