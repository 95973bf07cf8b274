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

    def __init__(self) -> None:
        self.number = 0
        self.begin: dict[int, int] = {}  # the first iteration of each worker in it
        self.stops: dict[int, Stop] = {}  # where each worker stops; only the planning shard knows
        self.reached: dict[int, int] = {}  # the last superstep whose stop each worker has come to
        self.missing: list[int] = []  # who has not come to its stop of this one
        self.place: dict[int, int] = {}  # where in that list
        self.outdated = False  # has someone come or gone since it was planned?

    def enter(self, worker: int, at: int) -> None:
        """A newcomer, or someone whose pace nobody knows yet, stops after the iteration that it is in."""
        self.begin[worker] = at
        self.stops[worker] = Stop(self.number, at)
        self.reached[worker] = self.number - 1
        self.place[worker] = len(self.missing)
        self.missing.append(worker)

    def arrive(self, worker: int) -> None:
        """A worker has come to its stop, or gone for good."""
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

    R: Count = 15
    planner: Literal["zipline", "grid_scan", "full_grid_scan"] = "zipline"
    predict: Literal["robust", "last"] = "robust"

    def memory(self, view: View) -> Superstep:
        superstep = Superstep()
        for worker in view.workers:
            superstep.enter(worker, view.iteration(worker))
        return superstep

    def may_pull(self, view: View, pull: Pulled) -> bool:
        stop = self.stop_of(view, pull)
        return pull.iteration < stop.iteration or bool(stop.superstep < view.memory.number)

    def may_close(self, view: View) -> bool:
        return not view.memory.missing

    def filed(self, view: View, pull: Pulled) -> int:
        return view.clock

    def pushed(self, view: View, push: Pushed) -> None:
        superstep: Superstep = view.memory
        stop = self.stop_of(view, push)
        reached = stop.superstep if push.iteration >= stop.iteration else stop.superstep - 1
        superstep.reached[push.worker] = reached
        if reached >= superstep.number:
            superstep.arrive(push.worker)

    def closed(self, view: View) -> None:
        superstep: Superstep = view.memory
        superstep.open(view.workers)
        superstep.outdated = False
        if view.index == 0:
            superstep.begin = {worker: view.iteration(worker) for worker in view.workers}
            self.plan(view, {worker: (at, at + self.R - 1) for worker, at in superstep.begin.items()})

    def joined(self, view: View, worker: int) -> None:
        view.memory.enter(worker, view.iteration(worker))
        view.memory.outdated = True

    def left(self, view: View, worker: int) -> None:
        superstep: Superstep = view.memory
        superstep.arrive(worker)
        for known in superstep.begin, superstep.stops, superstep.reached:
            known.pop(worker)
        superstep.outdated = True

    def stop(self, view: View, worker: int) -> Stop | None:
        if view.index != 0:
            return None
        if view.memory.outdated:
            self.plan_again(view)
        stop: Stop = view.memory.stops[worker]
        return stop

    def waiting_for(self, view: View) -> tuple[int, tuple[int, ...]]:
        missing = view.memory.missing
        return len(missing), tuple(missing[:NAMED])

    def stop_of(self, view: View, message: Pushed | Pulled) -> Stop:
        """The stop that this message goes by. A worker that was not told one yet stops after its first iteration."""
        if view.index == 0:
            stop: Stop = view.memory.stops[message.worker]
            return stop
        return message.stop or Stop(0, message.iteration)

    def plan_again(self, view: View) -> None:
        """Someone came or went: plan the rest of the superstep again, in time for the next grant that tells a stop.

        Who is at its stop keeps it, and so does who may be in the iteration that it was told to stop after. The others
        hear of a new one before they get there.
        """
        superstep: Superstep = view.memory
        superstep.outdated = False
        choices: dict[int, tuple[int, int]] = {}
        for worker in view.workers:
            at, stop = view.iteration(worker), superstep.stops[worker].iteration
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
