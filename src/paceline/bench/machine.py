"""What an event costs the machine of a shard, for each model, from 10 to 10 000 workers.

The events are those of a run in virtual time with uneven workers that wait for their grants. They are recorded first,
and then handed to a fresh shard against the clock: the cost is that of `Shard.handle` alone. ElasticBSP's planning is
timed apart, since it happens once in a superstep and not with every event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import Random
from statistics import median
from time import perf_counter

from msgspec import Struct

from paceline.bench.clock import Run, take_turns
from paceline.sync import MODELS, Event, Grant, Model, Pulled, Pushed, SetTimer, Shard, TimerFired, View, parse
from paceline.sync.models.elastic_bsp import ElasticBSP

EXPRESSIONS = {name: model.examples[0] for name, model in MODELS.items()} | {
    "dsps": "dsps(s_min=1, s_max=6)",
    "drop": "drop(n_t={most})",
    "pssp": "pssp(s=3, c=0.5)",
    "psp": "psp(c={most}, tau_push=0.05)",
}
SIZES = (10, 100, 1000, 10_000)

Recording = list[tuple[Event, float]]


class MachineRow(Struct):
    """One model at one size. `planning` is ElasticBSP's, per event, and not part of `microseconds`."""

    model: str
    workers: int
    events: int
    microseconds: float
    events_per_second: float
    growth: float  # over the cheapest size of the same model
    planning: float


class TimedElasticBSP(ElasticBSP, frozen=True):
    """Notes how long it takes to open a superstep, which is where it plans."""

    def closed(self, view: View) -> None:
        begin = perf_counter()
        super().closed(view)
        PLANNING.append(perf_counter() - begin)


PLANNING: list[float] = []  # how long each plan of the run under way took


def measure(events: int = 200_000, repeats: int = 5) -> Iterator[list[MachineRow]]:
    """For each model, its rows. The sizes of a model take turns."""
    for name in EXPRESSIONS:
        recordings = {workers: record(model(name, workers), workers, events) for workers in SIZES}
        planning: dict[int, list[float]] = {workers: [] for workers in SIZES}
        runs = {
            str(workers): replay(model(name, workers), workers, recording, planning[workers])
            for workers, recording in recordings.items()
        }
        seconds = take_turns(runs, repeats)
        each = {workers: 1e6 / len(recording) for workers, recording in recordings.items()}
        plan = {workers: median(planning[workers][1:]) * each[workers] for workers in SIZES}  # the first turn warms up
        cost = {workers: seconds[str(workers)] * each[workers] - plan[workers] for workers in SIZES}
        yield [
            MachineRow(
                str(model(name, workers)),
                workers,
                len(recordings[workers]),
                cost[workers],
                1e6 / cost[workers],
                cost[workers] / min(cost.values()),
                plan[workers],
            )
            for workers in SIZES
        ]


def model(name: str, workers: int) -> Model:
    if name == "elastic_bsp":
        return TimedElasticBSP(R=15)
    return parse(EXPRESSIONS[name].format(most=workers * 9 // 10))


def record(model: Model, workers: int, events: int, seed: int = 0) -> Recording:
    """The events of a run: workers whose paces differ by up to two times, and whose iterations differ by 10 %."""
    random = Random(seed)
    paces = [random.uniform(1.0, 2.0) for _ in range(workers)]
    shard = Shard(model, workers)
    agenda: list[tuple[float, int, int]] = []  # time, worker or -1 for a timer, iteration or timer
    recording: Recording = []

    def take(event: Event, now: float) -> None:
        recording.append((event, now))
        for command in shard.handle(event, now):
            if isinstance(command, Grant):
                pace = paces[command.worker] * random.uniform(0.9, 1.1)
                heappush(agenda, (now + pace, command.worker, command.next))
            elif isinstance(command, SetTimer):
                heappush(agenda, (command.at, -1, command.timer))

    for worker in range(workers):
        take(Pulled(worker, -1), 0.0)
    while len(recording) < events:
        now, worker, number = heappop(agenda)
        if worker < 0:
            take(TimerFired(number), now)
        else:
            take(Pushed(worker, number), now)
            take(Pulled(worker, number), now)
    return recording


def replay(model: Model, workers: int, recording: Recording, planning: list[float]) -> Callable[[], Run]:
    """Hand the events to a fresh shard, and note how much of the time went into planning."""

    def prepare() -> Run:
        PLANNING.clear()
        handle = Shard(model, workers).handle

        def run() -> None:
            for event, now in recording:
                handle(event, now)
            planning.append(sum(PLANNING))

        return run

    return prepare
