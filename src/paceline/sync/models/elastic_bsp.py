"""ElasticBSP: a barrier now and then, set where the workers' ends are predicted to lie closest (Zhao et al.).

Between barriers updates apply on arrival and pulls are answered at once. At its stop a worker's pull is held until all
live workers have reached theirs; reaching it means that the push of the stop's iteration is in. The first superstep,
before any interval is known, is BSP.

There is one plan for all shards: shards that planned on their own could each hold a worker that another waits for. So
the first shard plans and tells each worker its stop with its grants. The worker repeats the stop on all its messages,
and the other shards hold what lies at a stop until every live worker has come to its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from paceline.sync.events import Stop
from paceline.sync.models.base import Count, Model
from paceline.sync.progress import LOOKED_AT, NAMED
from paceline.sync.zipline import PLANNERS, predict

if TYPE_CHECKING:
    from paceline.sync.events import Pulled, Pushed
    from paceline.sync.view import View


class Rider:
    """One worker in the open superstep."""

    __slots__ = ("begin", "reached", "stop", "worker")

    def __init__(self, worker: int) -> None:
        self.worker = worker
        self.begin = 0  # its first iteration in the superstep
        self.stop: int | None = None  # after which it stops, once it was told; only the planning shard knows
        self.reached = -1  # the last superstep whose stop it has come to


class Superstep:
    """The open superstep: who stops where, and who has not come to its stop yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.riders: dict[int, Rider] = {}
        self.missing = 0  # how many have not come to their stops
        self.awaited: list[Rider] = []  # these, and some that have come since
        self.outdated = False  # has someone come or gone since it was planned?

    def enter(self, worker: int) -> Rider:
        """Someone takes part, and has to be told where to stop."""
        rider = self.riders[worker] = Rider(worker)
        self.missing += 1
        self.awaited.append(rider)
        return rider

    def leave(self, worker: int) -> None:
        self.reach(self.riders.pop(worker), self.number)

    def reach(self, rider: Rider, superstep: int) -> None:
        """A rider has come to its stop of this superstep."""
        if rider.reached < self.number <= superstep:
            self.missing -= 1
        rider.reached = superstep

    def open(self) -> None:
        """Go on to the first superstep that some rider has not finished."""
        self.number = 1 + min(rider.reached for rider in self.riders.values())
        self.awaited = [rider for rider in self.riders.values() if rider.reached < self.number]
        self.missing = len(self.awaited)

    def laggards(self) -> tuple[int, ...]:
        """One or a few of those that are missing."""
        awaited = self.awaited
        while awaited and awaited[-1].reached >= self.number:
            awaited.pop()
        recent = awaited[: -LOOKED_AT - 1 : -1]
        return tuple([rider.worker for rider in recent if rider.reached < self.number][:NAMED])


class ElasticBSP(Model, frozen=True):
    """Workers run freely to a barrier planned up to `R` iterations ahead; `elastic_bsp(R=1)` is `bsp`."""

    name: ClassVar[str] = "elastic_bsp"
    examples: ClassVar[tuple[str, ...]] = (
        "elastic_bsp(R=15)",
        "elastic_bsp(R=4, predict=last)",
        "elastic_bsp(R=3, planner=grid_scan)",
        "elastic_bsp(R=3, planner=full_grid_scan)",
        "elastic_bsp(R=1)",
    )
    intervals: ClassVar[int] = 5
    everywhere: ClassVar[bool] = True
    supersteps: ClassVar[bool] = True

    R: Count = 15
    planner: Literal["zipline", "grid_scan", "full_grid_scan"] = "zipline"
    predict: Literal["robust", "last"] = "robust"

    def memory(self, view: View) -> Superstep:
        # Numbered by the epoch, so that no plan is taken for one of an earlier time under this model.
        superstep = Superstep(view.epoch if view.index == 0 else 0)
        for worker in view.workers:
            rider, told = superstep.enter(worker), view.told(worker)
            if view.epoch == 0:
                rider.begin = rider.stop = view.iteration(worker)
            elif view.index != 0 and told is not None:
                self.came(superstep, rider, view.iteration(worker) - 1, told)
        return superstep

    def may_pull(self, view: View, pull: Pulled) -> bool:
        superstep: Superstep = view.memory
        rider = superstep.riders[pull.worker]
        if view.index == 0:
            return rider.reached < superstep.number or rider.stop is None or pull.iteration < rider.stop
        stop = pull.stop
        if stop is None or pull.iteration < stop.iteration:
            return True
        return not superstep.number <= stop.superstep <= rider.reached

    def may_close(self, view: View) -> bool:
        return not view.memory.missing

    def pushed(self, view: View, push: Pushed) -> None:
        superstep: Superstep = view.memory
        rider = superstep.riders[push.worker]
        if view.index != 0:
            if push.stop is not None:
                self.came(superstep, rider, push.iteration, push.stop)
        # Who was not told of a stop has none. Held unawares, it could wait for someone whom another shard holds.
        elif rider.stop is not None and push.iteration >= rider.stop:
            superstep.reach(rider, superstep.number)

    def came(self, superstep: Superstep, rider: Rider, iteration: int, stop: Stop) -> None:
        """A rider that knows of this stop has finished an iteration."""
        superstep.reach(rider, stop.superstep if iteration >= stop.iteration else stop.superstep - 1)

    def closed(self, view: View) -> None:
        superstep: Superstep = view.memory
        superstep.open()
        superstep.outdated = False
        if view.index == 0:
            for rider in superstep.riders.values():
                rider.begin = view.iteration(rider.worker)
            self.plan(view, [(rider, rider.begin, rider.begin + self.R - 1) for rider in superstep.riders.values()])

    def joined(self, view: View, worker: int) -> None:
        view.memory.enter(worker)
        view.memory.outdated = True

    def left(self, view: View, worker: int) -> None:
        view.memory.leave(worker)
        view.memory.outdated = True

    def stop(self, view: View, worker: int) -> Stop | None:
        superstep: Superstep = view.memory
        if view.index != 0:
            return None
        if superstep.outdated:
            self.plan_again(view)
        rider = superstep.riders[worker]
        if rider.stop is None:
            rider.begin = rider.stop = view.iteration(worker)  # nobody knows its pace yet
        return Stop(superstep.number, rider.stop)

    def waiting_for(self, view: View) -> tuple[int, tuple[int, ...]]:
        return view.memory.missing, view.memory.laggards()

    def plan_again(self, view: View) -> None:
        """Someone came or went: plan the rest of the superstep again, in time for the next grant that tells a stop.

        Who is at its stop keeps it, and so does who may be in the iteration that it was told to stop after. The others
        hear of a new one before they get there.
        """
        superstep: Superstep = view.memory
        superstep.outdated = False
        choices = []
        for rider in superstep.riders.values():
            if rider.stop is not None:
                at, stop = view.iteration(rider.worker), rider.stop
                choices.append((rider, stop, stop) if stop <= at else (rider, at + 1, rider.begin + self.R - 1))
        self.plan(view, choices)

    def plan(self, view: View, choices: list[tuple[Rider, int, int]]) -> None:
        """Choose each rider's stop between a first and a last choice; the first where no interval is known."""
        recent = {rider.worker: view.intervals(rider.worker) for rider, _, _ in choices}
        known = [choice for choice in choices if recent[choice[0].worker]]
        stops = [first for _, first, _ in known]
        if any(first < last for _, first, last in known):
            workers = [rider.worker for rider, _, _ in known]
            at = [view.iteration(worker) for worker in workers]
            begun = [view.computing_since(worker) for worker in workers]
            ends = predict(
                [recent[worker] for worker in workers],
                [view.now if since is None else since for since in begun],
                self.R,
                how=self.predict,
                first=[first - here for (_, first, _), here in zip(known, at, strict=True)],
                last=[last - here for (_, _, last), here in zip(known, at, strict=True)],
            )
            ahead = PLANNERS[self.planner](ends).stops.tolist()
            stops = [min(first + j - 1, last) for (_, first, last), j in zip(known, ahead, strict=True)]
        for rider, first, _ in choices:
            rider.stop = first
        for (rider, _, _), stop in zip(known, stops, strict=True):
            rider.stop = stop
