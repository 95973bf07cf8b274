"""Runs to record: real shards and workers' machines in any order, with everything that can happen to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from paceline.observe import ShardSetup, Trace
from paceline.sync import MODELS, Command, Event, Model, Pulled, Shard, View
from paceline.sync.invariants import Watch
from paceline.sync.models.base import Count, UpdateRule
from tests.cluster import Cluster

ALL = [expression for model in MODELS.values() for expression in model.examples]
MINE = "tests.observe.runs:EveryOther(n=2)"


class EveryOther(Model, frozen=True):
    """A user's own: lets a pull through on every n-th iteration only, until the round closes."""

    n: Count

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return pull.iteration < view.clock or pull.iteration % self.n == 0


class Recorded(Watch):
    """A watched shard whose every answer goes into a trace, as a server does it."""

    def __init__(self, shard: Shard, trace: Trace) -> None:
        super().__init__(shard)
        self._trace = trace

    def handle(self, event: Event, now: float) -> list[Command]:
        commands = super().handle(event, now)
        self._trace.record(self.shard.view.index, now, event, commands)
        return commands


def random_run(
    path: Path, random: Random, models: Sequence[str], then: Sequence[str] = (), update: UpdateRule | None = None
) -> None:
    """Workers that push, pull, die, return and repeat themselves in any order, and changes of model."""
    seed = random.randrange(100)
    with Trace(path, [ShardSetup(model, 4, seed, index, update) for index, model in enumerate(models)]) as trace:
        shards = [Shard(model, 4, seed, index=index, update=update) for index, model in enumerate(models)]
        running = Cluster(
            [Recorded(shard, trace) for shard in shards],
            4,
            8,
            random.randrange,
            significance=lambda worker, iteration: ((worker * 7 + iteration * 3) % 10) / 10,
        )
        for expression in then:
            for _ in range(random.randrange(60)):
                running.step()
            running.set_model(expression)
            if len(running.alive) > 1:
                worker = random.choice(running.alive)
                running.kill(worker)
                running.restart(worker)
            running.repeat(random.randrange(100))
        running.run()


def run_with_everything(path: Path) -> None:
    random_run(path, Random(5), ["psp(c=2, tau_push=0.5)", "psp(c=2, tau_push=0.5)"], ["ssp(s=1)", MINE])
