"""esync with real workers against bsp, and against DiLoCo and uneven rounds in a single process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    falls: float = 1.0,
) -> list[dict[str, Tensor]]:
    """What the two workers of a run have saved."""
    folder.mkdir()
    job = Job(workers=2, servers=2, sync=sync, deterministic=deterministic)
    arguments = [str(rounds), inner, outer, str(folder), str(sooner), str(in_place), str(falls)]
    with ScriptRun(job, SCRIPT, arguments, folder / "run", slow=[parse(text) for text in slow]) as run:
        list(run.updates())
    assert run.error is None, run.error
    assert run.lost == []
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


Weight = Callable[[int, int, int], float]  # by worker, round and local iterations that there were before
Outer = Callable[[torch.nn.Module], torch.optim.Optimizer]  # what takes the rounds into the parameters of all


def outer_of(model: ESync) -> Outer:
    """What the expression asks for, written out once more."""
    return lambda shared: torch.optim.SGD(
        shared.parameters(), lr=model.rate, momentum=model.momentum, nesterov=model.momentum > 0
    )


def diloco(
    steps: Sequence[Sequence[int]],
    inner: str,
    outer: Outer,
    falls: float = 1.0,
    weight: Weight = lambda *_: 1.0,
) -> Tensor:
    """The same in one process, to the letter of DiLoCo's algorithm 1: the parameters when each round begins.

    `steps` are each worker's in each of its rounds; in the last rounds there may be one worker only.
    """
    shared = replicas.network()
    step_outside = outer(shared)
    copies = [replicas.network() for _ in range(2)]
    steps_inside = [replicas.INNER[inner](copy) for copy in copies]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(step_inside, falls) for step_inside in steps_inside]
    begins, iterations = [replicas.flat(shared)], [0, 0]
    for round_ in range(len(steps[0])):
        there = 2 if round_ < len(steps[1]) else 1
        changes: list[list[Tensor]] = []
        for rank, (copy, step_inside) in enumerate(zip(copies[:there], steps_inside[:there], strict=True)):
            copy.load_state_dict(shared.state_dict())
            first = iterations[rank]
            iterations[rank] += steps[rank][round_]
            for nth in range(first, iterations[rank]):

                def closure(copy: torch.nn.Module = copy, rank: int = rank, nth: int = nth) -> Tensor:
                    copy.zero_grad()
                    found = replicas.loss(copy, rank, nth)
                    found.backward()  # type: ignore[no-untyped-call]
                    return found

                step_inside.step(closure)  # type: ignore[arg-type]
                schedules[rank].step()
            times = weight(rank, round_, iterations[rank] - 1)
            changes.append(
                [(p.detach() - q.detach()) * times for p, q in zip(shared.parameters(), copy.parameters(), strict=True)]
            )
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
        ("esync(steps=3, rate=0.7, momentum=0.9)", "adam", "mean", 3, False),
        ("esync(steps=1, momentum=0.9)", "sgd", "mean", 0, False),
        ("esync(steps=2, rate=0.7, momentum=0.9, aggregate=all_reduce)", "momentum", "mean", 3, False),
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
    rounds = (ROUNDS, ROUNDS - sooner)
    outside = replicas.nesterov if outer == "nesterov" else outer_of(model)
    expected = diloco([[model.steps] * count for count in rounds], inner, outside)
    found = ran(tmp_path / "run", sync, inner, outer, sooner=sooner, in_place=in_place)
    for mine, count in zip(found, rounds, strict=True):
        assert mine["steps"].tolist() == [model.steps] * count
        assert torch.equal(mine["begins"], expected[: count + 1])


def test_bytes_of_an_all_reduce_are_those_of_a_ring_as_under_ddp(tmp_path: Path) -> None:
    job = Job(workers=3, sync="esync(steps=2, aggregate=all_reduce)")
    with ScriptRun(job, SCRIPT, [str(ROUNDS), "sgd", "mean", str(tmp_path), "0", "False", "1.0"], tmp_path) as run:
        list(run.updates())
    assert run.error is None, run.error
    size = replicas.flat(replicas.network()).numel()
    moved = 2 * 2 * 4 * (size + 1) // 3  # one element more, which counts who takes part
    for worker in run.summary().workers:
        assert worker.sent == (ROUNDS + 1) * moved  # in the last one nobody takes part any more
        assert worker.received == worker.sent + 4 * size  # the first parameters came from the servers


@pytest.mark.parametrize(
    ("sync", "inner", "falls", "in_place"),
    [
        ("esync(rate=1.5)", "sgd", 0.95, False),
        ("esync(momentum=0.8)", "sgd", 0.95, False),
        ("esync(balance=1.5)", "sgd", 0.95, False),
        ("esync(balance=1.5)", "resumed", 1.0, True),
        ("esync(balance=1.5, aggregate=all_reduce)", "sgd", 0.95, False),
        ("esync(balance=inf)", "sgd", 1.0, False),
    ],
)
def test_what_a_worker_has_changed_weighs_as_balance_says(
    sync: str, inner: str, falls: float, in_place: bool, tmp_path: Path
) -> None:
    """By how many times as much the fastest has done, but by no more than the rate has fallen, times `balance`.

    One that was resumed began with four times the rate.
    """
    model = parse_model(sync)
    assert isinstance(model, ESync)
    slow = ("worker 0: +5ms", "worker 1: +100ms")
    found = ran(tmp_path / "run", sync, inner, slow=slow, falls=falls, in_place=in_place)
    steps, most = ([mine[name].tolist() for mine in found] for name in ("steps", "most"))
    weights: list[float] = []

    def weight(rank: int, round_: int, before: int) -> float:
        more = most[rank][round_] / steps[rank][round_]
        may = model.balance * (4 if inner == "resumed" else 1) / falls**before if model.balance else 1.0
        weights.append(max(min(more, may), 1.0))
        return weights[-1]

    expected = diloco(steps, inner, outer_of(model), falls, weight)
    for mine in found:
        assert torch.allclose(mine["begins"], expected, rtol=1e-5, atol=1e-6)
        assert mine["most"].max() >= mine["steps"].max() >= 1
    assert max(most[1]) > max(steps[1])  # the slow one has been told what the fast one does
    assert max(weights) > 1.4 or not model.balance


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
    with pytest.raises(OptimizerError, match=r"esync\(momentum=0\.5\)"):
        check_outer(replicas.nesterov(model), inner, ESync(momentum=0.5))
