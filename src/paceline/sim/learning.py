"""Learning in virtual time: real gradients of a real network on real data, while machines and clocks are simulated.

The simulation decides who computes what from which version, and when; this keeps the values. A shard's values are never
changed in place: a grant is a reference to them as they are, so a virtual worker computes on exactly the version that
it was answered with, however late it reads them. A gradient is a function of its worker's row and batch, both known
when an iteration begins. So it waits until the first one is needed, and those of all workers that are computing then
are found together.

What the update rule does is up to the machine in `sync/` and the optimizer in `params/`, as in a real run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from paceline.params import Optimizer, Slicing, elastic
from paceline.params.compensation import Compensator
from paceline.params.updater import Updater
from paceline.sim.cluster import Cluster, ClusterError
from paceline.sim.gradients import Batch, Gradients, OneByOne, Row, Together
from paceline.sim.record import Timeline
from paceline.sim.samples import Samples, shared
from paceline.sim.timeline import Simulation
from paceline.sync import Advance, Apply, Command, Drop, Grant, Model, parse
from paceline.sync.models.esync import ESync
from paceline.sync.models.psp import PSP

EVALUATED_AT_ONCE = 2500


class Task(Struct, frozen=True):
    """What is learnt. A worker's gradient is of `batch` samples of its part: even, or drawn from Dirichlet(`alpha`).

    It is no longer than `clip`. `optimizer` has the rate for a gradient that all workers have part in; under `esync` it
    is each worker's own, and the model's `rate` is that of what they send.
    """

    net: nn.Module
    train: TensorDataset
    test: TensorDataset
    optimizer: Optimizer
    batch: int = 64
    alpha: float | None = None
    clip: float = inf


class Point(Struct, frozen=True):
    """How good the parameters were at a time, on the test set; `gradients` have gone into them."""

    seconds: float
    accuracy: float
    gradients: int


class Learned(Struct, frozen=True):
    """A whole run: how it learnt, and who waited."""

    curve: list[Point]
    timeline: Timeline
    diverged: bool = False  # it ended early, with parameters that are no numbers any more

    def time_to(self, accuracy: float) -> float | None:
        """When the parameters were first this good."""
        return next((point.seconds for point in self.curve if point.accuracy >= accuracy), None)

    def final(self, points: int = 5) -> float:
        """The mean of the last few accuracies, or the very last of a run that came to nothing."""
        last = self.curve[-1:] if self.diverged else self.curve[-points:]
        return sum(point.accuracy for point in last) / len(last)


def learn(
    model: Model | str,
    cluster: Cluster,
    task: Task,
    *,
    until: float,
    every: float,
    enough: float | None = None,
    device: torch.device | str = "cpu",
) -> Learned:
    """Let the workers of a cluster learn under a model until a time, or until the accuracy is `enough`, or for nothing.

    The accuracy is measured `every` so many virtual seconds, if anything has changed.
    """
    if not 0 < every <= until:
        raise ClusterError(f"the accuracy cannot be measured every {every:g} seconds of {until:g}")
    model = parse(model)
    learning = Learning(model, cluster, task, device)
    simulation = Simulation(model, cluster, learning=learning, watched=False)
    curve = [learning.measured(0.0)]

    def measure() -> None:
        if learning.gradients > curve[-1].gradients:
            curve.append(learning.measured(simulation.now))
        if learning.diverged or (enough is not None and curve[-1].accuracy >= enough):
            simulation.stop()
        else:
            simulation.at(simulation.now + every, LAST, measure)

    simulation.at(every, LAST, measure)
    timeline = simulation.run(until)
    if learning.gradients > curve[-1].gradients:
        curve.append(learning.measured(timeline.seconds))
    return Learned(curve, timeline, learning.diverged)


LAST = 9  # the priority of a measurement: after all else that happens at the time


class Learning:
    """The values on all shards, what each worker knows of them, and the gradients between them."""

    def __init__(self, model: Model, cluster: Cluster, task: Task, device: torch.device | str = "cpu") -> None:
        self.task = task
        self.workers = cluster.size
        self.gradients = 0  # how many have gone into the parameters
        self.diverged = False  # are they no numbers any more?
        self._local = isinstance(model, ESync)
        self._linear = isinstance(model, PSP) and model.scaling == "linear"
        self._row = Row(task.net, device)
        self._gradients: Gradients = (Together if self._row.start.is_cuda else OneByOne)(self._row)
        self._slices = _cut(elastic(self._row.space, range(cluster.cuts)))
        self._values = [self._row.start[start:stop].clone() for start, stop in self._slices]
        outer = Optimizer("sgd", model.outer) if isinstance(model, ESync) else task.optimizer
        self._updaters = [self._updater(outer, start, stop) for start, stop in self._slices]
        self._compensators = [self._compensator(model, start, stop) for start, stop in self._slices]
        self._sums: list[dict[int, tuple[Tensor, int]]] = [{} for _ in self._slices]
        self._pushed: dict[tuple[int, int], Sent] = {}  # on their way: by worker and iteration
        self._granted: dict[tuple[int, int, int], Tensor] = {}  # on their way: by worker, shard and iteration
        x, y = (tensor.to(device) for tensor in task.train.tensors)
        parts = shared((x, y), self.workers, task.batch, alpha=task.alpha, seed=cluster.seed)
        self._students = [Student(self._values, samples) for samples in parts]
        if self._local:
            for student in self._students:
                student.updater = self._updater(task.optimizer, 0, self._row.space.size)
        self._test = [tensor.to(device) for tensor in task.test.tensors]

    def _updater(self, optimizer: Optimizer, start: int, stop: int) -> Updater:
        return Updater(optimizer, self._row.space, start, stop, device=self._row.start.device)

    def _compensator(self, model: Model, start: int, stop: int) -> Compensator | None:
        how, values = model.compensation, self._row.start
        return None if how is None else Compensator(how, stop - start, values.dtype, values.device)

    # At the servers.

    def decided(self, shard: int, commands: Iterable[Command]) -> None:
        """Do to the values what a shard has said."""
        for command in commands:
            match command:
                case Apply(worker=worker, iteration=iteration, round=round_):
                    self._apply(shard, round_, *self._arrived(shard, worker, iteration))
                case Drop(worker=worker, iteration=iteration):
                    self._arrived(shard, worker, iteration)
                case Advance(to=to):
                    for round_ in sorted(number for number in self._sums[shard] if number < to):
                        self._close(shard, *self._sums[shard].pop(round_))
                case Grant(worker=worker, iteration=iteration):
                    self._granted[worker, shard, iteration] = self._values[shard]

    def _arrived(self, shard: int, worker: int, iteration: int) -> tuple[Tensor, Tensor]:
        """A shard's part of a gradient, and of the parameters that it was computed from."""
        sent = self._pushed[worker, iteration]
        sent.left -= 1
        if not sent.left:
            del self._pushed[worker, iteration]
        start, stop = self._slices[shard]
        return sent.gradient[start:stop], sent.begin[start:stop]

    def _apply(self, shard: int, round_: int | None, gradient: Tensor, begin: Tensor) -> None:
        if shard == 0:
            self.gradients += 1
        if round_ is None:
            self._step(shard, self._corrected(shard, gradient, begin) / self.workers, 1.0)
        else:
            summed, count = self._sums[shard].get(round_, (None, 0))
            self._sums[shard][round_] = (gradient.clone() if summed is None else summed.add_(gradient)), count + 1

    def _corrected(self, shard: int, gradient: Tensor, begin: Tensor) -> Tensor:
        """The gradient, corrected for its delay where the model wants that."""
        compensator, whole = self._compensators[shard], slice(None)
        if compensator is None:
            return gradient
        corrected = torch.empty_like(gradient)
        squares = compensator.correct(gradient, self._values[shard], begin, whole, corrected)
        compensator.remember(squares, whole)
        return corrected

    def _close(self, shard: int, summed: Tensor, count: int) -> None:
        """The mean of a round's gradients; under `psp` with a rate in proportion to how many they are."""
        self._step(shard, summed / count, count / self.workers if self._linear else 1.0)

    def _step(self, shard: int, gradient: Tensor, rate: float) -> None:
        values = self._values[shard].clone()
        self._updaters[shard].step(values, [(0, gradient)], progress=0, rate=rate)
        self._values[shard] = values

    # At a worker.

    def answered(self, worker: int, shard: int, iteration: int) -> None:
        """A grant has come, and the values with it."""
        self._students[worker].newest[shard] = self._granted.pop((worker, shard, iteration))

    def starts(self, worker: int, take: Iterable[int]) -> None:
        """A worker puts these blocks in place and goes on from there."""
        student = self._students[worker]
        for shard in take:
            student.blocks[shard] = student.newest[shard]
        student.begin = student.row = student.blocks[0] if len(student.blocks) == 1 else torch.cat(student.blocks)

    def computes(self, worker: int) -> None:
        """An iteration begins: what it computes is settled, and computed later."""
        student = self._students[worker]
        student.batch, student.gradient = student.samples.next(), None

    def computed(self, worker: int, *, local: bool) -> None:
        """An iteration has ended. A local one changes the worker's own row."""
        student = self._students[worker]
        if student.gradient is None:
            waiting = [one for one in self._students if one.batch is not None and one.gradient is None]
            found = self._gradients([one.row for one in waiting], [one.batch for one in waiting])  # type: ignore[misc]
            for one, gradient in zip(waiting, found, strict=True):
                one.gradient = self._clipped(gradient)
        student.batch = None
        if local:
            assert student.updater is not None
            assert student.gradient is not None
            if student.row is student.begin:
                student.row = student.begin.clone()
            student.updater.step(student.row, [(0, student.gradient)], progress=0)

    def _clipped(self, gradient: Tensor) -> Tensor:
        clip = self.task.clip
        return gradient if clip == inf else gradient * (clip / gradient.norm()).clamp(max=1.0)

    def pushes(self, worker: int, iteration: int, weight: float) -> float:
        """A worker sends what it has, which local iterations have given a weight; returns how much that is beside its
        parameters."""
        student = self._students[worker]
        student.batch = None
        sent = (student.begin - student.row) * weight if self._local else student.gradient
        assert sent is not None
        self._pushed[worker, iteration] = Sent(sent, student.begin, len(self._slices))
        return float(sent.norm() / student.begin.norm())

    # How good it is.

    @torch.no_grad()
    def measured(self, seconds: float) -> Point:
        """The accuracy of the values as the servers have them now."""
        x, y = self._test
        row = torch.cat(self._values)
        self.diverged = not bool(row.isfinite().all())
        right = 0
        for first in range(0, len(y), EVALUATED_AT_ONCE):
            some = slice(first, first + EVALUATED_AT_ONCE)
            right += int((self._row.scores(row, x[some]).argmax(1) == y[some]).sum())
        return Point(seconds, right / len(y), self.gradients)


class Sent:
    """A gradient on its way to the shards, what it was computed from, and how many it has not reached yet."""

    __slots__ = ("begin", "gradient", "left")

    def __init__(self, gradient: Tensor, begin: Tensor, left: int) -> None:
        self.gradient, self.begin, self.left = gradient, begin, left


class Student:
    """A virtual worker: the values it knows, and what it computes with them."""

    def __init__(self, values: Sequence[Tensor], samples: Samples) -> None:
        self.newest = list(values)  # what has come of each shard
        self.blocks = list(values)  # what is in place
        self.begin = self.row = values[0]  # what it has started from; what it has made of that
        self.samples = samples
        self.batch: Batch | None = None  # of the iteration under way
        self.gradient: Tensor | None = None
        self.updater: Updater | None = None  # for local iterations


def _cut(slicing: Slicing) -> list[tuple[int, int]]:
    """Where each shard begins and ends: elastic slicing gives every server one piece."""
    return sorted((piece.start, piece.stop) for piece in slicing.slices)
