"""ElasticBSP: a barrier now and then, set where the workers' ends are predicted to lie closest (Zhao et al.).

Between barriers updates apply on arrival and pulls are answered at once. At its stop a worker's pull is held until all
live workers have reached theirs; reaching it means that the push of the stop's iteration is in. The first superstep,
before any interval is known, is BSP.

There is one plan for all shards: shards that planned on their own could each hold a worker that another waits for. So
the first shard plans and tells each worker its stop with its grants. The worker repeats the stop on all its messages,
and the other shards hold what lies at a stop until every live worker has come to its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, Literal

from paceline.sync.events import Stop
from paceline.sync.models.base import Count, Model
from paceline.sync.progress import NAMED
from paceline.sync.zipline import PLANNERS, predict

if TYPE_CHECKING:
    from paceline.sync.events import Pulled, Pushed
    from paceline.sync.view import View


class Superstep:
    """The open superstep: who stops where, and who has not come to its stop yet."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.begin: dict[int, int] = {}  # the first iteration of each worker in it
        self.stops: dict[int, Stop] = {}  # where each worker stops; only the planning shard knows
        self.reached: dict[int, int] = {}  # the last superstep whose stop each worker has come to
        self.missing: list[int] = []  # who has not come to its stop of this one
        self.place: dict[int, int] = {}  # where in that list
        self.outdated = False  # has someone come or gone since it was planned?

    def enter(self, worker: int) -> None:
        """Someone takes part, and has to be told where to stop."""
        self.reached[worker] = -1
        self.place[worker] = len(self.missing)
        self.missing.append(worker)

    def tell(self, worker: int, at: int) -> Stop:
        """Someone whose pace nobody knows yet goes on with iteration `at`: it stops after that."""
        self.begin[worker] = at
        self.stops[worker] = Stop(self.number, at)
        return self.stops[worker]

    def passed(self, worker: int, iteration: int, stop: Stop) -> None:
        """A worker has finished an iteration of the superstep that `stop` is of."""
        self.reached[worker] = stop.superstep if iteration >= stop.iteration else stop.superstep - 1
        if self.reached[worker] >= self.number:
            self.remove(worker)

    def remove(self, worker: int) -> None:
        """A worker is no longer missing."""
        at = self.place.pop(worker, None)
        if at is not None:
            last = self.missing.pop()
            if last != worker:
                self.missing[at] = last
                self.place[last] = at

    def open(self, workers: Collection[int]) -> None:
        """Go on to the first superstep that some worker has not finished."""
        self.number = 1 + min(self.reached[worker] for worker in workers)
        self.missing = [worker for worker in workers if self.reached[worker] < self.number]
        self.place = {worker: at for at, worker in enumerate(self.missing)}


class ElasticBSP(Model, frozen=True):
    """Workers run freely to a barrier planned up to `R` iterations ahead; `elastic_bsp(R=1)` is `bsp`."""

    name: ClassVar[str] = "elastic_bsp"
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
            superstep.enter(worker)
            told = view.told(worker)
            if view.epoch == 0:
                superstep.tell(worker, view.iteration(worker))
            elif view.index != 0 and told is not None:
                superstep.passed(worker, view.iteration(worker) - 1, told)
        return superstep

    def may_pull(self, view: View, pull: Pulled) -> bool:
        superstep: Superstep = view.memory
        stop = self.stop_of(view, pull)
        if stop is None or pull.iteration < stop.iteration:
            return True
        return not superstep.number <= stop.superstep <= superstep.reached[pull.worker]

    def may_close(self, view: View) -> bool:
        return not view.memory.missing

    def pushed(self, view: View, push: Pushed) -> None:
        stop = self.stop_of(view, push)
        if stop is not None:
            view.memory.passed(push.worker, push.iteration, stop)

    def closed(self, view: View) -> None:
        superstep: Superstep = view.memory
        superstep.open(view.workers)
        superstep.outdated = False
        if view.index == 0:
            superstep.begin = {worker: view.iteration(worker) for worker in view.workers}
            self.plan(view, {worker: (at, at + self.R - 1) for worker, at in superstep.begin.items()})

    def joined(self, view: View, worker: int) -> None:
        view.memory.enter(worker)
        view.memory.outdated = True

    def left(self, view: View, worker: int) -> None:
        superstep: Superstep = view.memory
        superstep.remove(worker)
        for known in superstep.begin, superstep.stops, superstep.reached:
            known.pop(worker, None)
        superstep.outdated = True

    def stop(self, view: View, worker: int) -> Stop | None:
        superstep: Superstep = view.memory
        if view.index != 0:
            return None
        if superstep.outdated:
            self.plan_again(view)
        return superstep.stops.get(worker) or superstep.tell(worker, view.iteration(worker))

    def waiting_for(self, view: View) -> tuple[int, tuple[int, ...]]:
        missing = view.memory.missing
        return len(missing), tuple(missing[:NAMED])

    def stop_of(self, view: View, message: Pushed | Pulled) -> Stop | None:
        """The stop that this message goes by: the plan's, or what the worker was last told of it.

        There is none for a worker that was not told yet. Held unawares, it could wait for someone whom another shard
        holds.
        """
        if view.index == 0:
            stop: Stop | None = view.memory.stops.get(message.worker)
            return stop
        return message.stop

    def plan_again(self, view: View) -> None:
        """Someone came or went: plan the rest of the superstep again, in time for the next grant that tells a stop.

        Who is at its stop keeps it, and so does who may be in the iteration that it was told to stop after. The others
        hear of a new one before they get there.
        """
        superstep: Superstep = view.memory
        superstep.outdated = False
        choices: dict[int, tuple[int, int]] = {}
        for worker, told in superstep.stops.items():
            at, stop = view.iteration(worker), told.iteration
            choices[worker] = (stop, stop) if stop <= at else (at + 1, superstep.begin[worker] + self.R - 1)
        self.plan(view, choices)

    def plan(self, view: View, choices: dict[int, tuple[int, int]]) -> None:
        """Choose each worker's stop between its first and its last choice; the first where no interval is known."""
        superstep: Superstep = view.memory
        stops = {worker: first for worker, (first, _) in choices.items()}
        known = [worker for worker in choices if view.intervals(worker)]
        if any(choices[worker][0] < choices[worker][1] for worker in known):
            at = [view.iteration(worker) for worker in known]
            begun = [view.computing_since(worker) for worker in known]
            ends = predict(
                [view.intervals(worker) for worker in known],
                [view.now if since is None else since for since in begun],
                self.R,
                how=self.predict,
                first=[choices[worker][0] - here for worker, here in zip(known, at, strict=True)],
                last=[choices[worker][1] - here for worker, here in zip(known, at, strict=True)],
            )
            for worker, ahead in zip(known, PLANNERS[self.planner](ends).stops.tolist(), strict=True):
                first, last = choices[worker]
                stops[worker] = min(first + ahead - 1, last)
        superstep.stops = {worker: Stop(superstep.number, at) for worker, at in stops.items()}
