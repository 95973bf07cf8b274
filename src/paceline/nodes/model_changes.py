"""Other models for shards of a run that goes on: what may be asked for, and who has still to answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from paceline.nodes import messages as m
from paceline.nodes.job import Job, waits_for_its_round
from paceline.sync import Model, ModelError, parse
from paceline.sync.models.esync import ESync


class Change(Struct):
    """It was asked for over this link. The servers that have not answered, by link, and what others have said."""

    asker: int
    missing: set[int]
    errors: list[str] = []


class ModelChanges:
    """`in_force` has the expression of each shard's model, `places` where the shards are."""

    def __init__(self, job: Job) -> None:
        self.in_force: list[str] = []
        self._job = job
        self._places: Sequence[m.Place] = []
        self._under_way: list[Change] = []

    def begin(self, places: Sequence[m.Place]) -> None:
        self._places = places
        self.in_force = [self._job.sync] * len(places)

    def wrong(self, change: m.Change) -> str | None:
        """Why it cannot be, in words; None if it can."""
        if change.shard is not None and not 0 <= change.shard < len(self._places):
            return f"there is no shard {change.shard}; there are 0 to {len(self._places) - 1}"
        try:
            model = parse(change.sync)
        except ModelError as error:
            return str(error)
        if trains_replicas(model) or trains_replicas(parse(self._job.sync)):
            return "workers of esync train replicas of their own; it is chosen when a run starts and cannot be changed"
        if self._job.deterministic and not waits_for_its_round(model, self._job.update, self._job.workers):
            return f"the run is deterministic; {change.sync} sums in no fixed order"
        if change.shard is not None and len(self._places) > 1:
            for name in (change.sync, self.in_force[change.shard]):
                if parse(name).everywhere:
                    return f"{name} must be in force on all shards or on none; leave out the shard"
        return None

    def ask(self, asker: int, change: m.Change, servers: Mapping[int, int]) -> Iterable[int]:
        """The links over which to ask, of all servers by their number. It is in force from now on."""
        shards = range(len(self._places)) if change.shard is None else [change.shard]
        for shard in shards:
            self.in_force[shard] = change.sync
        asked = {servers[self._places[shard].server] for shard in shards}
        self._under_way.append(Change(asker, set(asked)))
        return sorted(asked)

    def answered(self, server: int, error: str | None) -> tuple[int, m.Changed] | None:
        """Once it was the last to answer: what to tell whom. Servers answer in the order in which they were asked."""
        change = next((change for change in self._under_way if server in change.missing), None)
        if change is None:
            return None
        change.missing.remove(server)
        change.errors += [error] if error else []
        if change.missing:
            return None
        self._under_way.remove(change)
        return change.asker, m.Changed(change.errors[0] if change.errors else None)


def trains_replicas(model: Model) -> bool:
    return isinstance(model, ESync) and not model.one_step
