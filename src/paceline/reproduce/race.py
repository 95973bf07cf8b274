"""Models that learn the same in virtual time: who is first to an accuracy, and who is best in the end.

A seed is for the first parameters, the order of the samples and the machines' jitter, so all models have the same of
each. Every model gets its learning rate from the same small grid: the best with the worse of two seeds, which are then
left out of what is compared. Runs are independent, and each has a core; with a GPU a few of them share it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from math import inf
from multiprocessing import get_context
from statistics import median

import msgspec
import torch
from msgspec import Struct
from torch.utils.data import TensorDataset

from paceline import nets
from paceline.data import cifar10, digits, fashion_mnist
from paceline.params import Optimizer
from paceline.reproduce.target import Progress
from paceline.sim.cluster import Cluster
from paceline.sim.learning import Learned, Task, learn

NETS = {"lenet": nets.lenet, "cnn": nets.cnn, "alexnet": nets.alexnet}
MOST_NOISE = 0.02
TRIED = 2  # seeds, to choose a rate by
SHARING = 6  # how many runs share a GPU: each keeps it busy for a part of its time only
Key = tuple[str, float, int]  # a model, its rate, and a seed
DATA = {"digits": digits.load, "Fashion-MNIST": fashion_mnist.load, "CIFAR-10": cifar10.load}


class Lesson(Struct, frozen=True):
    """What is learnt, on which machines, and for how many virtual seconds."""

    sync: str
    cluster: Cluster
    until: float
    every: float  # so many seconds the accuracy is measured
    net: str = "lenet"
    data: str = "Fashion-MNIST"
    batch: int = 32
    alpha: float | None = None
    momentum: float = 0.0
    rate: float = 0.1
    clip: float = inf  # the longest that a gradient may be
    seed: int = 0
    enough: float | None = None  # an accuracy that ends it


class Racer(Struct, frozen=True):
    """One model: the rate that it learns with, and how it learnt with each seed."""

    name: str
    rate: float
    runs: list[Learned]

    def times(self, accuracy: float) -> list[float]:
        """When each run was this good; infinity if it never was."""
        return [inf if (time := run.time_to(accuracy)) is None else time for run in self.runs]

    def time(self, accuracy: float) -> float:
        return median(self.times(accuracy))

    def finals(self) -> list[float]:
        return [run.final() for run in self.runs]

    def final(self) -> float:
        return median(self.finals())

    def spread(self) -> float:
        """Of the final accuracies, from the worst to the best."""
        return max(self.finals()) - min(self.finals())


def noise(racers: Iterable[Racer]) -> float:
    """What makes no difference: as much as seeds differ under the same model, but two points at most."""
    return min(max(racer.spread() for racer in racers), MOST_NOISE)


def race(
    lessons: Mapping[str, Lesson],
    *,
    rates: Sequence[float],
    seeds: int,
    accuracy: float | None = None,
    leader: str | None = None,
    progress: Progress,
) -> dict[str, Racer]:
    """Every model learns with each rate, and then for each seed with the best of them.

    That is the one that is first to an `accuracy`, or without one the best in the end. With a `leader`, all models have
    the rate that suits that one.
    """
    tuned = lessons if leader is None else {leader: lessons[leader]}
    trials = {
        (name, rate, seed): msgspec.structs.replace(lesson, rate=rate, seed=seed, enough=accuracy)
        for name, lesson in tuned.items()
        for rate in rates
        for seed in range(TRIED)
    }
    total = len(trials) + len(lessons) * seeds
    tried = dict(learnt(trials, 0, total, progress))

    def worse(name: str, rate: float) -> float:
        return min(_score(tried[name, rate, seed], accuracy) for seed in range(TRIED))

    suits = {name: max(rates, key=lambda rate: worse(name, rate)) for name in tuned}
    chosen = {name: suits[leader or name] for name in lessons}
    counted = range(TRIED, TRIED + seeds)
    heats = {
        (name, chosen[name], seed): msgspec.structs.replace(lesson, rate=chosen[name], seed=seed)
        for name, lesson in lessons.items()
        for seed in counted
    }
    ran = dict(learnt(heats, len(trials), total, progress))
    return {name: Racer(name, rate, [ran[name, rate, seed] for seed in counted]) for name, rate in chosen.items()}


def _score(learned: Learned, accuracy: float | None) -> float:
    """The sooner the better; of those that never come so far, the better in the end."""
    time = None if accuracy is None else learned.time_to(accuracy)
    return learned.final() - 1e9 if time is None else -time


def learnt(lessons: Mapping[Key, Lesson], done: int, total: int, progress: Progress) -> Iterator[tuple[Key, Learned]]:
    """All of these, as they end."""
    progress(done, total, "learning in virtual time")
    cuda = torch.cuda.is_available()
    processes = SHARING if cuda else len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        runs = {pool.submit(attend, lesson, "cuda" if cuda else "cpu"): key for key, lesson in lessons.items()}
        for run in as_completed(runs):
            done += 1
            lesson = lessons[runs[run]]
            progress(done, total, f"{lesson.sync}, rate {lesson.rate:g}, seed {lesson.seed}")
            yield runs[run], run.result()


def attend(lesson: Lesson, device: str = "cpu") -> Learned:
    """Learn, and come back with how it went; who waited when is left out of that."""
    train, test = _data(lesson.data)
    channels, side = train.tensors[0].shape[1:3]
    torch.manual_seed(lesson.seed)
    net = nets.lenet(channels, side=side) if lesson.net == "lenet" else NETS[lesson.net](channels)
    optimizer = Optimizer("sgd", {"lr": lesson.rate, "momentum": lesson.momentum})
    task = Task(net, train, test, optimizer, lesson.batch, lesson.alpha, lesson.clip)
    cluster = msgspec.structs.replace(lesson.cluster, seed=lesson.seed)
    learned = learn(
        lesson.sync,
        cluster,
        task,
        until=lesson.until,
        every=lesson.every,
        enough=lesson.enough,
        device=device,
    )
    for lane in learned.timeline.lanes:
        lane.spans.clear()
    return learned


@cache
def _data(name: str) -> tuple[TensorDataset, TensorDataset]:
    return DATA[name]()
