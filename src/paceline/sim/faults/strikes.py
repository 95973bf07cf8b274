"""What each fault does to a cluster. Each function says whether it had an effect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from paceline.sim.faults.draw import (
    ClockJump,
    Crash,
    Delay,
    Duplication,
    Fault,
    Join,
    Loss,
    Partition,
    Pause,
    Restart,
    SlowServer,
    StateServerLost,
)

if TYPE_CHECKING:
    from paceline.sim.faults.lives import Life
    from paceline.sim.faults.storm import Storm

NEWCOMERS = 8  # how many workers may join
TOLD = 2.0  # within how many seconds a worker that counts as dead hears of it, once it can


def crash(storm: Storm, fault: Crash, alive: list[Life]) -> bool:
    life = alive[fault.who % len(alive)]
    life.end(lost=fault.lost)
    storm.at(storm.now + storm.plan.detected, partial(storm.declare_if_needed, life))
    back = 1.0 if fault.back is None and len(alive) == 1 else fault.back
    if back is not None:
        storm.bring_back(life, back)
    return True


def restart(storm: Storm, fault: Restart, alive: list[Life]) -> bool:
    return crash(storm, Crash(fault.at, fault.who, fault.who % 3 == 0, 0.0), alive)


def join(storm: Storm, fault: Join, alive: list[Life]) -> bool:
    worker, first = len(storm.paces), len(storm.plan.paces)
    if worker >= first + NEWCOMERS:
        return False
    storm.paces[worker] = storm.plan.paces[worker % first]
    storm.enter(worker, 0, fault.iteration)
    return True


def pause(storm: Storm, fault: Pause, alive: list[Life]) -> bool:
    until = storm.now + fault.seconds
    if fault.server:
        host = storm.hosts[fault.who % len(storm.hosts)]
        host.frozen = max(host.frozen, until)
    else:
        life = alive[fault.who % len(alive)]
        life.frozen = max(life.frozen, until)
        _silence(storm, life, until)
    return True


def partition(storm: Storm, fault: Partition, alive: list[Life]) -> bool:
    life, until = alive[fault.who % len(alive)], storm.now + fault.seconds
    cut = life.links if fault.server is None else [life.links[fault.server % len(life.links)]]
    for link in cut:
        link.blocked = max(link.blocked, until)
    if fault.server is None:
        _silence(storm, life, until)
    return True


def _silence(storm: Storm, life: Life, until: float) -> None:
    """If it lasts, the coordinator takes the worker for dead; it hears of that once it can."""
    life.silent = max(life.silent, until)
    if until > storm.now + storm.plan.detected:
        storm.at(storm.now + storm.plan.detected, partial(storm.declare_if_needed, life))
        storm.at(until + storm.random.uniform(0, TOLD), partial(_is_told, storm, life))


def _is_told(storm: Storm, life: Life) -> None:
    if life.alive and life.declared:
        storm.reborn(life)


def delay(storm: Storm, fault: Delay, alive: list[Life]) -> bool:
    for link in alive[fault.who % len(alive)].links:
        link.late = fault.by, storm.now + fault.seconds
    return True


def loss(storm: Storm, fault: Loss, alive: list[Life]) -> bool:
    life = alive[fault.who % len(alive)]
    link = life.links[fault.server % len(life.links)]
    was_up = link.up
    link.break_for(fault.seconds)
    return was_up


def duplication(storm: Storm, fault: Duplication, alive: list[Life]) -> bool:
    """It counts later, if a message has really arrived twice."""
    pipes = [link.there for link in alive[fault.who % len(alive)].links]
    storm.doubling.append((pipes, sum(pipe.copied for pipe in pipes)))
    for pipe in pipes:
        pipe.copies += fault.times
    return False


def slow_server(storm: Storm, fault: SlowServer, alive: list[Life]) -> bool:
    storm.hosts[fault.server % storm.plan.servers].slow = fault.by, storm.now + fault.seconds
    return True


def clock_jump(storm: Storm, fault: ClockJump, alive: list[Life]) -> bool:
    nodes: list[Any] = storm.hosts if fault.server else alive
    nodes[fault.who % len(nodes)].offset += fault.by
    return True


def state_server_lost(storm: Storm, fault: StateServerLost, alive: list[Life]) -> bool:
    if storm.state_lost:
        return False
    storm.lose_state_server()
    return True


STRIKES: dict[type[Fault], Callable[[Storm, Any, list[Life]], bool]] = {
    Crash: crash,
    Restart: restart,
    Join: join,
    Pause: pause,
    Partition: partition,
    Delay: delay,
    Loss: loss,
    Duplication: duplication,
    SlowServer: slow_server,
    ClockJump: clock_jump,
    StateServerLost: state_server_lost,
}
