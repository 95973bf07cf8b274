"""What can go wrong in a cluster, and how a whole run of it is drawn from a seed.

A fault is a small value with the time at which it strikes. Whom it strikes is settled then, among those alive: `who` is
a number that is taken modulo their count. A `Plan` is all that a run under faults depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from msgspec import Struct

from paceline.sync import MODELS, Model, parse

FAULTS = 28, 34  # how many are drawn for a run, at least and at most
DETECTED = 1.5, 4.0  # after how many seconds the coordinator takes a silent worker for dead
WHO = 1 << 16


class Fault(Struct, frozen=True, tag=True):
    """Something goes wrong at a time."""

    at: float

    @property
    def kind(self) -> str:
        return KINDS[type(self)]


class Crash(Fault, frozen=True):
    """A worker is gone; `lost` with all that it had under way. Shards hear of it later, if `back` maybe too late."""

    who: int
    lost: bool
    back: float | None  # after how many seconds it is started again


class Restart(Fault, frozen=True):
    """A worker is gone and back at once, as another incarnation, which shards may hear of before the death."""

    who: int


class Join(Fault, frozen=True):
    """A worker comes whose number was not there, and takes part from `iteration` if it has one."""

    iteration: int | None


class Pause(Fault, frozen=True):
    """A worker or a server does nothing for a while; what is sent to it queues."""

    who: int
    server: bool
    seconds: float


class Partition(Fault, frozen=True):
    """Nothing gets through between a worker and a server, or between a worker and everyone.

    In the second case the coordinator takes it for dead if it lasts.
    """

    who: int
    server: int | None
    seconds: float


class Delay(Fault, frozen=True):
    """What goes to and from a worker is late by so many seconds, for a while."""

    who: int
    by: float
    seconds: float


class Loss(Fault, frozen=True):
    """The connection of a worker to a server breaks; what was under way is gone. It is back after so many seconds."""

    who: int
    server: int
    seconds: float


class Duplication(Fault, frozen=True):
    """The next messages of a worker to every server arrive twice."""

    who: int
    times: int


class SlowServer(Fault, frozen=True):
    """A server answers late by so many seconds, for a while."""

    server: int
    by: float
    seconds: float


class ClockJump(Fault, frozen=True):
    """The clock of a worker or a server jumps, ahead or back."""

    who: int
    server: bool
    by: float


class StateServerLost(Fault, frozen=True):
    """ESync's State Server answers no more; workers find out one by one."""


KINDS: dict[type[Fault], str] = {
    Crash: "crash",
    Restart: "restart",
    Join: "join",
    Pause: "pause",
    Partition: "partition",
    Delay: "delay",
    Loss: "loss",
    Duplication: "duplication",
    SlowServer: "slow server",
    ClockJump: "clock jump",
    StateServerLost: "State Server lost",
}


class Change(Struct, frozen=True):
    """No fault, but it comes at an awkward time: the user asks for another model, on one shard or on all."""

    at: float
    model: str
    shard: int | None


class Plan(Struct, frozen=True):
    """One run under faults."""

    seed: int
    models: tuple[str, ...]  # of each shard at first
    servers: int
    paces: tuple[float, ...]  # of each worker, seconds per iteration
    jitter: float
    latency: float
    far: float  # how long a message to the State Server travels
    iterations: int  # where a worker's work ends
    b: float
    tau: float
    numbered: bool  # do pushes have a sequence of their own?
    detected: float
    faults: tuple[Fault, ...]
    changes: tuple[Change, ...]

    @property
    def shards(self) -> int:
        return len(self.models)

    @property
    def expressions(self) -> list[str]:
        """Every model that it runs under."""
        return list(dict.fromkeys([*self.models, *(change.model for change in self.changes)]))


MORE = (  # what is worth another look, with times and counts that fit a short run
    "drop(n_t=2)",
    "drop(n_t=4)",
    "psp(c=1, tau_push=0.5)",
    "psp(c=2, tau_push=1.5)",
    "pssp(s=1, c=0.5, release=soft)",
    "esync(query=nonblocking)",
    "esync(query=nonblocking, max_steps=3)",
    "esync(epsilon=1.0, query=nonblocking)",
)
FREE = "asp", "asp", "ssp(s=3)", "pssp(s=2, c=0.3, release=soft)"  # run ahead here while another shard holds you
COINS = "pssp(s=1, c=0.5)", "pssp(s=0, alpha=0.8)", "pssp(s=1, c=0.3, release=soft)"
EXAMPLES = [*(expression for model in MODELS.values() for expression in model.examples), *MORE]


def draw(seed: int, sync: Model | str | None = None) -> Plan:
    """The run that a seed stands for. With a model, all of it is under that one."""
    random = Random(seed)
    first = EXAMPLES[seed % len(EXAMPLES)] if sync is None else str(parse(sync))
    model = parse(first)
    partial = not model.everywhere and random.random() < 0.4  # do workers start without all blocks?
    split = partial and sync is None and random.random() < 0.5  # does one shard hold while others let run ahead?
    workers = random.choice((1, 2, 3, 3, 4, 4, 5, 6))
    shards = random.choice((3, 4)) if partial else random.choice((1, 2, 2, 3, 4))
    iterations = random.randint(6, 10)
    paces, jitter = _paces(random, workers, brisk=split or model.name == "esync")
    span = 0.8 * iterations * (max(paces) if model.name == "esync" or split else min(paces))
    models = (first,) * shards
    if sync is None and not model.everywhere and (split or random.random() < 0.2):
        models = (first, *(random.choice(FREE if split else _local()) for _ in range(shards - 1)))
    b, tau = random.choice((0.3, 0.5) if split else (0.3, 0.5, 0.7)), random.choice((0.0, 0.5, 2.0))
    if not partial:
        b, tau = model.b, model.tau_pull
    return Plan(
        seed=seed,
        models=models,
        servers=shards if partial else random.randint(1, shards),
        paces=paces,
        jitter=jitter,
        latency=random.choice((0.0, 0.02, 0.1, 0.4)),
        far=random.choice((0.02, 0.5, 1.0, 2.0)),
        iterations=iterations,
        b=b,
        tau=0.0 if split else tau,
        numbered=random.random() < 0.7,
        detected=random.uniform(*DETECTED),
        faults=_faults(random, first, span),
        changes=_changes(random, first, shards, span, partial=partial, split=split) if sync is None else (),
    )


def _local() -> list[str]:
    return [expression for expression in EXAMPLES if not parse(expression).everywhere]


def _paces(random: Random, workers: int, *, brisk: bool) -> tuple[tuple[float, ...], float]:
    """Whole numbers, so that ends coincide; or anything; and now and then a worker that is far behind."""
    if brisk:
        paces, jitter = [random.choice((0.5, 0.8, 2.0)) for _ in range(workers)], 0.3
    elif random.random() < 0.4:
        paces, jitter = [float(random.randint(1, 3)) for _ in range(workers)], 0.0
    else:
        paces, jitter = [random.uniform(0.5, 3.0) for _ in range(workers)], 0.3
    if workers > 1 and random.random() < 0.25:
        paces[random.randrange(workers)] *= 5
    return tuple(paces), jitter


def _changes(random: Random, first: str, shards: int, span: float, *, partial: bool, split: bool) -> tuple[Change, ...]:
    """Some runs change their model on the way; where all are free to differ, also on one shard alone."""
    if split:  # where pulls pile up, coins let some of them go
        times = sorted(random.uniform(0, 1.2 * span) for _ in range(4))
        return tuple(Change(at, random.choice(COINS if nth % 2 else _local()), 0) for nth, at in enumerate(times))
    if random.random() < (0.8 if parse(first).name == "esync" else 0.4):
        return ()
    free = not parse(first).everywhere
    found = []
    for at in sorted(random.uniform(0, 1.2 * span) for _ in range(random.randint(1, 5))):
        alone = free and random.random() < 0.4
        model = random.choice(_local() if alone or partial else EXAMPLES)
        free = alone or not parse(model).everywhere
        found.append(Change(at, model, random.randrange(shards) if alone else None))
    return tuple(found)


def _faults(random: Random, first: str, span: float) -> tuple[Fault, ...]:
    faults = [_fault(random, span) for _ in range(random.randint(*FAULTS))]
    if parse(first).name == "esync":
        state_server = -1  # the last of a worker's connections
        for _ in range(10):
            at, seconds = random.uniform(0, span), random.uniform(1, 12)
            faults.append(Partition(at, random.randrange(WHO), state_server, seconds))
        if random.random() < 0.3:
            faults.append(StateServerLost(random.uniform(0, span)))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _fault(random: Random, span: float) -> Fault:
    at = random.uniform(0, span) if random.random() < 0.8 else random.uniform(0, span / 5)
    return random.choices(list(DRAWS), list(DRAWS.values()))[0](random, at)


def _crash(random: Random, at: float) -> Fault:
    back = random.choice((None, random.uniform(0, 1), random.uniform(0, 6)))
    return Crash(at, random.randrange(WHO), random.random() < 0.5, back)


def _restart(random: Random, at: float) -> Fault:
    return Restart(at, random.randrange(WHO))


def _join(random: Random, at: float) -> Fault:
    return Join(at, random.randint(1, 4) if random.random() < 0.4 else None)


def _pause(random: Random, at: float) -> Fault:
    return Pause(at, random.randrange(WHO), random.random() < 0.4, random.uniform(0.1, 3))


def _partition(random: Random, at: float) -> Fault:
    server = random.randrange(WHO) if random.random() < 0.5 else None
    return Partition(at, random.randrange(WHO), server, random.uniform(0.5, 8))


def _delay(random: Random, at: float) -> Fault:
    return Delay(at, random.randrange(WHO), random.uniform(0.2, 4), random.uniform(0.5, 6))


def _loss(random: Random, at: float) -> Fault:
    return Loss(at, random.randrange(WHO), random.randrange(WHO), random.uniform(0, 1.5))


def _duplication(random: Random, at: float) -> Fault:
    return Duplication(at, random.randrange(WHO), random.randint(1, 10))


def _slow_server(random: Random, at: float) -> Fault:
    return SlowServer(at, random.randrange(WHO), random.uniform(0.2, 3), random.uniform(1, 6))


def _clock_jump(random: Random, at: float) -> Fault:
    return ClockJump(at, random.randrange(WHO), random.random() < 0.6, random.uniform(-8, 8))


DRAWS: dict[Callable[[Random, float], Fault], float] = {
    _crash: 1.5,
    _restart: 2,
    _join: 1.5,
    _pause: 2,
    _partition: 2,
    _delay: 2,
    _loss: 3,
    _duplication: 3,
    _slow_server: 1.5,
    _clock_jump: 2,
}
