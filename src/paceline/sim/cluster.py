"""The machines of a simulation: how long each takes for an iteration, what lies between them, and what a server does.

    seed = 0
    megabytes = 45                      # of parameters, which every worker pushes and pulls
    shards = 2                          # all alike; or sizes = [90, 10], how large one is beside the others
    slow = ["worker 3: 5x", "server 0: 0.16% +4s"]     # as in `paceline run --slow`

    [[workers]]                         # a group of machines that are alike
    count = 3
    seconds = 0.1                       # of an iteration
    sigma = 0.2                         # lognormal around it; or jitter = 0.1, up to 10 % off it

    [[workers]]
    times = [0.31, 0.28, 0.35]          # as they were measured, again and again

    [servers]
    count = 2
    update = 0.01                       # seconds to update all parameters once

    [network]
    latency = 0.0002
    gigabits = 10                       # of each machine, each way

An iteration's length depends on the seed, the worker and how many it has done before, and on nothing else. So the same
cluster under two synchronization models is the same cluster: only the waiting differs.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
from msgspec import Struct

from paceline.sim.record import Timeline
from paceline.slowness import Delays, Slowness, SlownessError, check, parse
from paceline.sync.coin import coin

SALT = 0x9ACE  # keeps these coins apart from those that a model draws with the same seed
MOST_WORKERS = 1_000_000


class ClusterError(ValueError):
    """A cluster that cannot be: no workers, a pace that is no time, a hiccup of nobody."""


class Hiccup(Struct, frozen=True):
    """A machine stands still for `seconds` from the time `at` on."""

    worker: int
    at: float
    seconds: float


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """Workers that are alike: `seconds` for an iteration, or the `times` that were measured, over and over.

    `jitter=0.05` lets an iteration be up to 5 % off, evenly; `sigma` lets its logarithm be normal. `gigabits` per
    second, if not the network's.
    """

    seconds: float = 0.0
    times: tuple[float, ...] = ()
    count: int = 1
    jitter: float = 0.0
    sigma: float = 0.0
    gigabits: float | None = None

    @property
    def pace(self) -> float:
        """What an iteration takes, roughly."""
        return sorted(self.times)[len(self.times) // 2] if self.times else self.seconds

    def work(self, worker: int, nth: int, seed: int) -> float:
        """How long an iteration takes."""
        seconds = self.times[nth % len(self.times)] if self.times else self.seconds
        if self.jitter:
            seconds *= 1 + self.jitter * (2 * coin(seed, worker, nth, SALT) - 1)
        if self.sigma:
            seconds *= math.exp(self.sigma * NormalDist().inv_cdf(max(coin(seed, worker, nth, SALT + 1), 2.0**-54)))
        return seconds


class Servers(Struct, frozen=True, forbid_unknown_fields=True):
    """`update` is how many seconds it takes to update all parameters once; a shard takes its share of that."""

    count: int = 1
    update: float = 0.0
    gigabits: float | None = None


class Network(Struct, frozen=True, forbid_unknown_fields=True):
    """`latency` in seconds, of all servers or of each. What a machine sends, and what it gets, queues for its line."""

    latency: float | tuple[float, ...] = 0.0
    gigabits: float = inf


class Cluster(Struct, frozen=True, forbid_unknown_fields=True):
    """Workers in groups, servers, and the network between them."""

    workers: tuple[Group, ...]
    servers: Servers = Servers()
    network: Network = Network()
    megabytes: float = 0.0
    shards: int | None = None  # without it, one for each of the sizes, or for each server
    sizes: tuple[float, ...] = ()  # of the shards, beside each other; without them, all alike
    slow: tuple[str, ...] = ()
    hiccups: tuple[Hiccup, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_workers()
        _at_least("servers.count", self.servers.count, 1, MOST_WORKERS)
        _at_least("servers.update", self.servers.update, 0)
        _at_least("megabytes", self.megabytes, 0)
        if self.shards is not None:
            _at_least("shards", self.shards, self.servers.count, MOST_WORKERS)
        self._check_sizes()
        for latency in self.latencies:
            _at_least("network.latency", latency, 0)
        if len(self.latencies) != self.servers.count:
            raise ClusterError(f"network.latency has {len(self.latencies)} values for {self.servers.count} servers")
        for gigabits in (self.network.gigabits, self.servers.gigabits, *(group.gigabits for group in self.workers)):
            if gigabits is not None and not gigabits > 0:
                raise ClusterError(f"gigabits is {gigabits:g}; give a number above 0")
        for hiccup in self.hiccups:
            if not (0 <= hiccup.worker < self.size and hiccup.seconds >= 0):
                raise ClusterError(f"{hiccup} is of no worker, or of no length; workers are 0 to {self.size - 1}")
        try:
            check(self.slownesses, self.size, self.servers.count)
        except SlownessError as error:
            raise ClusterError(str(error)) from None

    def _check_workers(self) -> None:
        if not self.workers:
            raise ClusterError("a cluster needs at least one worker; give a group of them, [[workers]], with seconds")
        for number, group in enumerate(self.workers):
            where = f"group {number} of the workers"
            _at_least(f"{where}: count", group.count, 1, MOST_WORKERS)
            if group.times and group.seconds:
                raise ClusterError(f"{where}: give either seconds, of an iteration, or times, as they were measured")
            for seconds in group.times or (group.seconds,):
                if not 0 < seconds < inf:
                    raise ClusterError(f"{where} takes {seconds:g} seconds per iteration; give a number above 0")
            if not 0 <= group.jitter < 1:
                raise ClusterError(f"{where}: jitter is {group.jitter:g}; give a share from 0 to below 1")
            _at_least(f"{where}: sigma", group.sigma, 0, 3)

    def _check_sizes(self) -> None:
        for size in self.sizes:
            _at_least("a shard's size", size, 0)
        if self.sizes and not sum(self.sizes) > 0:
            raise ClusterError("all sizes are 0; give how large each shard is beside the others, such as 90, 10")
        if self.sizes and not self.servers.count <= len(self.sizes) == self.cuts:
            counts = f"{self.cuts} shards on {self.servers.count} servers"
            raise ClusterError(f"sizes has {len(self.sizes)} values for {counts}; give one for each shard")

    @property
    def size(self) -> int:
        """How many workers there are."""
        return sum(group.count for group in self.workers)

    @property
    def cuts(self) -> int:
        """How many shards there are."""
        return (len(self.sizes) or self.servers.count) if self.shards is None else self.shards

    @property
    def shares(self) -> tuple[float, ...]:
        """Which part of the parameters each shard is."""
        sizes = self.sizes or (1.0,) * self.cuts
        return tuple(size / sum(sizes) for size in sizes)

    @property
    def latencies(self) -> tuple[float, ...]:
        """Of each server."""
        latency = self.network.latency
        return (latency,) * self.servers.count if isinstance(latency, int | float) else tuple(latency)

    @property
    def slownesses(self) -> list[Slowness]:
        return [parse(text) for text in self.slow]


def of_paces(
    paces: Sequence[float],
    *,
    jitter: float = 0.0,
    hiccups: Sequence[Hiccup] = (),
    latency: float | Sequence[float] = 0.0,
    shards: int = 1,
    slow: Sequence[str] = (),
    seed: int = 0,
) -> Cluster:
    """Workers with a pace each, in seconds per iteration, and as many servers as shards, at a latency."""
    for worker, pace in enumerate(paces):
        if not 0 < pace < inf:
            raise ClusterError(f"worker {worker} takes {pace:g} seconds per iteration; give a number above 0")
    latencies = [latency] * shards if isinstance(latency, int | float) else latency
    if shards < 1 or len(latencies) != shards or not all(0 <= delay < inf for delay in latencies):
        raise ClusterError(f"{shards} shards with a latency of {latency}; give at least one, and seconds from 0 for it")
    return Cluster(
        workers=tuple(Group(seconds=pace, jitter=jitter) for pace in paces),
        servers=Servers(count=shards),
        network=Network(latency=tuple(latencies)),
        slow=tuple(slow),
        hiccups=tuple(hiccups),
        seed=seed,
    )


def parse_toml(text: str) -> Cluster:
    """The cluster that a text describes."""
    try:
        return msgspec.convert(tomllib.loads(text), Cluster)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, SlownessError) as error:
        raise ClusterError(str(error)) from None


def read(path: str | Path) -> Cluster:
    """The cluster that a TOML file describes."""
    try:
        return parse_toml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{str(path)!r} cannot be read: {error}") from None
    except ClusterError as error:
        raise ClusterError(f"{path}: {error}") from None


def measured(timeline: Timeline, seed: int = 0) -> Cluster:
    """The workers of a run, each with the times that its iterations took; what the network took is in them.

    With the run's own seed, models that toss coins toss the same ones.
    """
    groups = []
    for lane in timeline.lanes:
        times = tuple(round(span.seconds, 6) for span in lane.spans[:-1] if span.kind == "computing")
        if not any(times):
            raise ClusterError(f"worker {lane.worker} has finished no iteration in this run, so its pace is not known")
        groups.append(Group(times=tuple(max(time, 1e-6) for time in times)))
    return Cluster(workers=tuple(groups), seed=seed)


def to_toml(cluster: Cluster) -> str:
    """What `read` reads."""
    values = msgspec.to_builtins(cluster)
    lines = [f"{key} = {_toml(value)}" for key, value in values.items() if _is_plain(value)]
    for key in ("servers", "network"):
        lines += ["", f"[{key}]", *_table(values[key])]
    for key in ("workers", "hiccups"):
        for entry in values[key]:
            lines += ["", f"[[{key}]]", *_table(entry)]
    return "\n".join(lines) + "\n"


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return not (value and isinstance(value[0], dict))
    return value is not None and not isinstance(value, dict)


def _table(values: dict[str, Any]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]


def _toml(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


class Machine:
    """One worker's: when its iterations end."""

    def __init__(self, cluster: Cluster, group: Group, worker: int) -> None:
        self.pace = group.pace
        self._group = group
        self._worker = worker
        self._seed = cluster.seed
        self._delays = Delays(cluster.slownesses, "worker", worker, cluster.seed) if cluster.slow else None
        mine = (hiccup for hiccup in cluster.hiccups if hiccup.worker == worker)
        self._hiccups = sorted(mine, key=lambda hiccup: hiccup.at)

    def end(self, nth: int, begun: float) -> float:
        """When its `nth` iteration ends if it begins at `begun`."""
        work = self._group.work(self._worker, nth, self._seed)
        if self._delays:
            work += self._delays.of(nth, work, begun)
        end = begun + work
        for hiccup in self._hiccups:
            over = hiccup.at + hiccup.seconds
            if begun < over and hiccup.at < end:
                end += over - max(begun, hiccup.at)
        return end


def machines(cluster: Cluster) -> list[Machine]:
    """Of all workers, in the order of their numbers."""
    groups = (group for group in cluster.workers for _ in range(group.count))
    return [Machine(cluster, group, worker) for worker, group in enumerate(groups)]


def _at_least(what: str, value: float, least: float, most: float = inf) -> None:
    if not (least <= value <= most and value < inf):
        upto = f" to {most:,g}" if most < inf else ""
        raise ClusterError(f"{what} is {value:g}; give a number from {least:g}{upto}")
