"""Learning in virtual time, against plain PyTorch that is told the same events."""

from __future__ import annotations

from functools import cache
from math import inf

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from paceline.data import digits
from paceline.params import Optimizer
from paceline.sim import Cluster, ClusterError, Group, Servers
from paceline.sim.gradients import OneByOne, Row, Together
from paceline.sim.learning import Learned, Learning, Task, learn
from paceline.sim.timeline import Simulation
from paceline.sync import MODELS, parse
from paceline.training.parts import even_part
from tests.oracles.dc_asgd import ParameterServer

BATCH = 32
SECONDS = 6.0


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Several wait for each other in a busy loop, which takes long where other tests have the cores."""
    torch.set_num_threads(1)


@cache
def data() -> tuple[TensorDataset, TensorDataset]:
    return digits.load()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def task(lr: float = 0.5, momentum: float = 0.0, alpha: float | None = None, clip: float = inf) -> Task:
    return Task(net(), *data(), Optimizer("sgd", {"lr": lr, "momentum": momentum}), BATCH, alpha, clip)


def cluster(workers: int = 3, shards: int = 1, uneven: float = 1.0, seed: int = 5) -> Cluster:
    groups = tuple(Group(seconds=1.0 + (uneven - 1) * rank, jitter=0.1) for rank in range(workers))
    return Cluster(groups, Servers(count=shards), seed=seed)


def values(model: str, machines: Cluster, what: Task, seconds: float = SECONDS) -> Tensor:
    """The parameters that the servers end with."""
    learning = Learning(parse(model), machines, what)
    Simulation(parse(model), machines, learning=learning).run(seconds)
    return torch.cat(learning._values)


def batch(rank: int, nth: int, workers: int, seed: int = 5) -> tuple[Tensor, Tensor]:
    """The samples of a worker's iteration, early in the first epoch."""
    x, y = data()[0].tensors
    order = even_part(len(y), rank=rank, world_size=workers, seed=seed, epoch=0, shuffle=True)
    chosen = torch.from_numpy(order[nth * BATCH : (nth + 1) * BATCH])
    return x[chosen], y[chosen]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("shards", [1, 3])
def test_bsp_equals_one_process_with_the_joined_batch(shards: int, momentum: float) -> None:
    one = net()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.5, momentum=momentum)
    machines = cluster(shards=shards)
    rounds = Simulation(parse("bsp"), machines).run(SECONDS).rounds
    for nth in range(rounds):
        optimizer.zero_grad()
        batches = [batch(rank, nth, 3) for rank in range(3)]
        loss = cross_entropy(one(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches]))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert rounds > 3
    expected = nn.utils.parameters_to_vector(one.parameters())
    torch.testing.assert_close(values("bsp", machines, task(momentum=momentum)), expected.detach())


@pytest.mark.parametrize("model", ["bsp", "esync(max_steps=1)"])
def test_gradients_are_clipped_one_by_one_as_torch_does_it(model: str) -> None:
    one, clip, lengths = net(), 0.6, []
    optimizer = torch.optim.SGD(one.parameters(), lr=0.5)
    machines = cluster()
    rounds = Simulation(parse(model), machines).run(SECONDS).rounds
    for nth in range(rounds):
        mean = [torch.zeros_like(parameter) for parameter in one.parameters()]
        for rank in range(3):
            x, y = batch(rank, nth, 3)
            optimizer.zero_grad()
            cross_entropy(one(x), y).backward()  # type: ignore[no-untyped-call]
            lengths.append(float(nn.utils.clip_grad_norm_(one.parameters(), clip)))
            for total, parameter in zip(mean, one.parameters(), strict=True):
                assert parameter.grad is not None
                total += parameter.grad / 3
        for total, parameter in zip(mean, one.parameters(), strict=True):
            parameter.grad = total
        optimizer.step()
    assert min(lengths) < clip < max(lengths)
    expected = nn.utils.parameters_to_vector(one.parameters())
    torch.testing.assert_close(values(model, machines, task(clip=clip)), expected.detach())


@pytest.mark.parametrize("model", ["asp", "ssp(s=1)", "elastic_bsp(R=4)"])
@pytest.mark.parametrize("shards", [1, 2])
def test_every_gradient_is_of_the_version_that_was_granted(model: str, shards: int) -> None:
    """A literal account of the trace: who was granted which version, and what came of it."""
    machines = cluster(shards=shards, uneven=2.0)
    row = Row(net())
    cuts = Learning(parse(model), machines, task())._slices
    now = row.start.clone()
    read = {worker: now.clone() for worker in range(3)}
    done = dict.fromkeys(range(3), 0)
    sent: dict[tuple[int, int], Tensor] = {}

    def account(shard: int, at: float, event: object, commands: object) -> None:
        start, stop = cuts[shard]
        for command in commands:  # type: ignore[attr-defined]
            kind, worker = type(command).__name__, getattr(command, "worker", -1)
            if kind == "Apply":
                key = worker, command.iteration
                if key not in sent:
                    sent[key] = OneByOne(row)([read[worker]], [batch(worker, done[worker], 3)])[0]
                    done[worker] += 1
                now[start:stop] -= 0.5 / 3 * sent[key][start:stop]
            elif kind == "Grant":
                read[worker][start:stop] = now[start:stop]

    Simulation(parse(model), machines, account).run(SECONDS)
    assert done[0] >= done[2] > 1
    torch.testing.assert_close(values(model, machines, task()), now)


@pytest.mark.parametrize(
    ("model", "strength", "m"), [("dc_asgd(lam=50)", 50.0, None), ("dc_asgd(kind=adaptive)", 2.0, 0.95)]
)
@pytest.mark.parametrize("shards", [1, 2])
def test_late_gradients_are_corrected_as_dc_asgd_does_it(
    model: str, strength: float, m: float | None, shards: int
) -> None:
    machines = cluster(shards=shards, uneven=2.0)
    row = Row(net())
    cuts = Learning(parse(model), machines, task())._slices
    servers = [ParameterServer(row.start[start:stop], 3, 0.5, strength, m, 0.0) for start, stop in cuts]
    read = {worker: row.start.clone() for worker in range(3)}
    done = dict.fromkeys(range(3), 0)
    sent: dict[tuple[int, int], Tensor] = {}

    def account(shard: int, at: float, event: object, commands: object) -> None:
        place = slice(*cuts[shard])
        for command in commands:  # type: ignore[attr-defined]
            kind, worker = type(command).__name__, getattr(command, "worker", -1)
            if kind == "Apply":
                key = worker, command.iteration
                if key not in sent:
                    sent[key] = OneByOne(row)([read[worker]], [batch(worker, done[worker], 3)])[0]
                    done[worker] += 1
                servers[shard].receive_gradient(worker, sent[key][place])
            elif kind == "Grant":
                read[worker][place] = servers[shard].receive_pull_request(worker)

    Simulation(parse(model), machines, account).run(SECONDS)
    expected = torch.cat([server.w.detach() for server in servers])
    torch.testing.assert_close(values(model, machines, task()), expected)
    assert not torch.allclose(values("asp", machines, task()), expected, atol=1e-4)


@pytest.mark.parametrize("model", ["esync", "esync(balance=2)", "esync(balance=inf)", "esync(rate=0.5, momentum=0.8)"])
def test_local_iterations_add_up_to_what_is_sent(model: str) -> None:
    """ESync by hand, for one round: each worker's own steps, and the mean of what they changed, by its weight."""
    bound = {"esync(balance=2)": 2.0, "esync(balance=inf)": inf}.get(model, 1.0)
    outside = 0.5 * (1 + 0.8) if "momentum" in model else 1.0  # Nesterov's first step
    machines = Cluster((Group(seconds=1.0), Group(seconds=4.0)), seed=5)
    steps: list[int] = []
    simulation = Simulation(parse(model), machines)
    timeline = simulation.run(8.0)
    steps = [
        sum(span.kind == "computing" and span.iteration == 0 and not span.wasted for span in lane.spans)
        for lane in timeline.lanes
    ]
    assert timeline.rounds >= 1
    assert steps[0] > 2 > steps[1] == 1
    ends = next(span.end for span in timeline.lanes[1].spans if span.kind == "computing")
    most = sum(span.kind == "computing" and span.end < ends for span in timeline.lanes[0].spans)  # as far as is known
    row = Row(net())
    changed = torch.zeros_like(row.start)
    for rank, count in enumerate(steps):
        mine = row.start.clone()
        for nth in range(count):
            mine -= 0.1 * OneByOne(row)([mine], [batch(rank, nth, 2)])[0]
        changed += (mine - row.start) * min(max(most / count, 1.0), bound)
    learning = Learning(parse(model), machines, task(lr=0.1))
    running = Simulation(parse(model), machines, learning=learning)
    running.run(ends + 0.001)
    torch.testing.assert_close(torch.cat(learning._values), row.start + changed / 2 * outside)


@pytest.mark.parametrize(
    ("model", "other"),
    [
        ("dc_asgd(lam=0)", "asp"),
        ("ssp(s=0)", "asp"),
        ("esync(max_steps=1)", "bsp"),
        ("psp(c=3)", "bsp"),
        ("ssp(s=inf)", "asp"),
    ],
)
def test_models_that_decide_alike_learn_alike(model: str, other: str) -> None:
    """`ssp(0)` decides as `bsp` does, but applies gradients on arrival."""
    machines = cluster(uneven=1.5)
    same = torch.allclose(values(model, machines, task()), values(other, machines, task()), atol=1e-6)
    assert same == (model != "ssp(s=0)")


def test_a_round_with_few_gradients_steps_less_under_psp() -> None:
    machines = cluster(uneven=4.0)
    row = Row(net())
    first = OneByOne(row)([row.start], [batch(0, 0, 3)])[0]
    expected = row.start - 0.5 / 3 * first
    torch.testing.assert_close(values("psp(c=1, tau_push=0)", machines, task(), 1.5), expected)
    torch.testing.assert_close(values("drop(n_t=1)", machines, task(), 1.5), row.start - 0.5 * first)


@pytest.mark.parametrize("model", [model.examples[0] for model in MODELS.values()])
def test_every_model_learns(model: str) -> None:
    learned = learn(model, cluster(uneven=1.5), task(), until=80.0, every=10.0)
    assert learned.final(1) > 0.8
    assert learned.curve[0].gradients == 0
    assert [point.seconds for point in learned.curve] == sorted(point.seconds for point in learned.curve)


def test_one_seed_gives_one_curve() -> None:
    def run(seed: int) -> Learned:
        return learn("asp", cluster(uneven=2.0, seed=seed), task(alpha=0.1), until=20.0, every=2.0)

    assert run(1) == run(1)
    assert run(1).curve != run(2).curve


def test_it_stops_when_it_is_good_enough() -> None:
    learned = learn("bsp", cluster(), task(), until=1000.0, every=5.0, enough=0.7)
    assert learned.timeline.seconds < 1000
    assert learned.time_to(0.7) == learned.curve[-1].seconds == learned.timeline.seconds
    assert learned.time_to(0.999) is None


def test_it_stops_when_it_has_diverged() -> None:
    learned = learn("asp", cluster(), task(lr=1e38, momentum=0.9), until=200.0, every=20.0)
    diverged, seconds = learned.diverged, learned.timeline.seconds
    assert diverged
    assert seconds < 200
    assert learned.final() == learned.curve[-1].accuracy < 0.3
    assert not learn("asp", cluster(), task(), until=5.0, every=5.0).diverged


def test_together_equals_one_by_one() -> None:
    row = Row(net())
    rows = [row.start + 0.01 * number for number in range(5)]
    batches = [batch(rank, 0, 5) for rank in range(5)]
    batches[3] = (batches[3][0][:7], batches[3][1][:7])
    for alone, joint in zip(OneByOne(row)(rows, batches), Together(row)(rows, batches), strict=True):
        torch.testing.assert_close(joint, alone)


def test_what_cannot_be_learnt_is_refused() -> None:
    with pytest.raises(ValueError, match="has buffers"):
        Row(nn.Sequential(nn.BatchNorm1d(4)))
    with pytest.raises(ValueError, match="too few for 500 workers"):
        learn("bsp", cluster(500), task(), until=1.0, every=1.0)
    with pytest.raises(ClusterError, match="every 0 seconds"):
        learn("bsp", cluster(), task(), until=1.0, every=0.0)
