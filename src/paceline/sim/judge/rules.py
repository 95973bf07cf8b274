"""Each model's rule once more, plainly: what the judge compares the core's decisions with.

Nothing here asks the models themselves; only their parameters are read. Where the core counts as it goes, these recount
everything, which a few workers can afford.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Any, Protocol

from paceline.sim.judge.plans import PLANNERS
from paceline.sync.coin import coin
from paceline.sync.events import Pulled, Pushed, Stop

if TYPE_CHECKING:
    from paceline.sim.judge.reference import Account


class Sight(Protocol):
    """What a rule may look at."""

    members: dict[int, Account]
    clock: int
    now: float
    seed: int
    index: int
    epoch: int

    def laggards(self) -> list[Account]: ...


class Rule:
    """As under `bsp`: a pull goes once its round is closed, and a round closes when everyone has pushed it."""

    sums = False  # are the gradients of a round summed?
    jumps = False  # does a grant take who is behind to the open round?
    intervals = 0  # how many recent intervals are kept
    supersteps = False

    def __init__(self, model: Any, shard: Sight) -> None:
        self.model = model
        self.shard = shard

    def may_pull(self, pull: Pulled) -> bool:
        return pull.iteration < self.shard.clock

    def may_close(self) -> bool:
        return self.past() == len(self.shard.members)

    def past(self) -> int:
        return sum(account.next > self.shard.clock for account in self.shard.members.values())

    def missing(self) -> list[int]:
        return [worker for worker, account in self.shard.members.items() if account.next <= self.shard.clock]

    def filed(self, pull: Pulled) -> int:
        """The round whose closing frees a held pull."""
        if getattr(self.model, "release", "lazy") == "soft":
            return self.soft(pull)
        return pull.iteration

    def soft(self, pull: Pulled) -> int:
        return self.shard.clock

    def round(self, push: Pushed) -> int:
        return push.iteration

    def pushed(self, push: Pushed) -> None: ...

    def closed(self) -> None: ...

    def joined(self, worker: int) -> None: ...

    def left(self, worker: int) -> None: ...

    def wake(self) -> float | None:
        return None

    def stop(self, worker: int) -> Stop | None:
        return None


class Bsp(Rule):
    sums = True

    def soft(self, pull: Pulled) -> int:
        return pull.iteration


class Asp(Rule):
    def may_pull(self, pull: Pulled) -> bool:
        return True


class Ssp(Rule):
    def may_pull(self, pull: Pulled) -> bool:
        return bool(pull.iteration - self.shard.clock < self.model.s)

    def soft(self, pull: Pulled) -> int:
        return int(pull.iteration - self.model.s)


class Dsps(Rule):
    intervals = 3

    def __init__(self, model: Any, shard: Sight) -> None:
        super().__init__(model, shard)
        self.s = model.s_min
        self.due = shard.clock + 1

    def may_pull(self, pull: Pulled) -> bool:
        return bool(pull.iteration - self.shard.clock < self.s)

    def closed(self) -> None:
        if self.shard.clock < self.due:
            return
        self.due = self.shard.clock + 4
        known = [sorted(account.intervals) for account in self.shard.members.values() if account.intervals]
        paces = [recent[(len(recent) - 1) // 2] for recent in known]
        if paces and min(paces) > 0:
            more = round(max(paces) / min(paces)) - 1
            self.s = sorted((self.model.s_min, more, self.model.s_max))[1]


class Dssp(Rule):
    intervals = 1

    def __init__(self, model: Any, shard: Sight) -> None:
        super().__init__(model, shard)
        self.until: dict[int, int] = {}

    def may_pull(self, pull: Pulled) -> bool:
        i, worker, clock = pull.iteration, pull.worker, self.shard.clock
        if i - clock < self.model.s_low:
            self.until.pop(worker, None)
            return True
        until = self.until.setdefault(worker, i + self.extra(worker) if worker not in self.until else 0)
        if i < until and i - clock < self.model.s_high:
            return True
        self.until.pop(worker)
        return False

    def left(self, worker: int) -> None:
        self.until.pop(worker, None)

    def extra(self, worker: int) -> int:
        slowest = self.shard.laggards()[0]
        mine, theirs = self.shard.members[worker].intervals, slowest.intervals
        if not mine or not theirs or theirs[-1] <= 0:
            return 0
        begun = self.shard.now if slowest.granted_at is None else slowest.granted_at
        best, least = 0, None
        for extra in range(self.model.s_high - self.model.s_low + 1):
            end = self.shard.now + extra * mine[-1]
            pushes = max(1, round((end - begun) / theirs[-1]))
            distance = abs(begun + pushes * theirs[-1] - end)
            if least is None or distance < least:
                best, least = extra, distance
        return best


class Drop(Bsp):
    jumps = True

    def may_close(self) -> bool:
        return bool(self.past() >= self.model.n_t or self.past() == len(self.shard.members))


class Pssp(Rule):
    def may_pull(self, pull: Pulled) -> bool:
        gap, s = pull.iteration - self.shard.clock, self.model.s
        if gap < s:
            return True
        salt = self.shard.index if self.model.coin == "shard" else -1
        tossed = coin(self.shard.seed, pull.worker, pull.iteration, salt)
        if self.model.c is not None:
            return bool(tossed >= self.model.c)
        alpha = self.model.alpha
        if alpha == "significance":
            alpha = self.shard.members[pull.worker].significance
        return bool(tossed >= alpha / (1 + exp(s - gap)))


class Psp(Rule):
    sums = jumps = True

    def __init__(self, model: Any, shard: Sight) -> None:
        super().__init__(model, shard)
        self.gradients = 0
        self.deadline: float | None = None

    def may_close(self) -> bool:
        if self.past() == len(self.shard.members):
            return True
        if self.gradients < self.model.c and self.past() < self.model.c:
            return False
        if self.deadline is None:
            self.deadline = self.shard.now + self.model.tau_push
        return self.shard.now >= self.deadline

    def round(self, push: Pushed) -> int:
        return self.shard.clock

    def pushed(self, push: Pushed) -> None:
        self.gradients += push.iteration >= self.shard.clock

    def closed(self) -> None:
        self.gradients, self.deadline = 0, None

    def wake(self) -> float | None:
        return self.deadline


class Esync(Rule):
    sums = True


class Ride:
    """One worker in the open superstep."""

    def __init__(self) -> None:
        self.begin = 0
        self.stop: int | None = None
        self.reached = -1


class Elastic(Rule):
    intervals = 5
    supersteps = True

    def __init__(self, model: Any, shard: Sight) -> None:
        super().__init__(model, shard)
        self.plans = shard.index == 0
        self.number = shard.epoch if self.plans else 0
        self.outdated = False
        self.rides: dict[int, Ride] = {}
        for worker, account in shard.members.items():
            ride = self.rides[worker] = Ride()
            if shard.epoch == 0:
                ride.begin = ride.stop = account.next
            elif not self.plans and account.told is not None:
                self.came(ride, account.next - 1, account.told)

    def may_pull(self, pull: Pulled) -> bool:
        ride, stop = self.rides[pull.worker], pull.stop
        if self.plans:
            at_stop = ride.stop is not None and pull.iteration >= ride.stop
            return not (at_stop and ride.reached >= self.number)
        if stop is None or pull.iteration < stop.iteration:
            return True
        return stop.superstep < self.number or stop.superstep > ride.reached

    def may_close(self) -> bool:
        return not self.missing()

    def missing(self) -> list[int]:
        return [worker for worker, ride in self.rides.items() if ride.reached < self.number]

    def came(self, ride: Ride, iteration: int, stop: Stop) -> None:
        ride.reached = stop.superstep if iteration >= stop.iteration else stop.superstep - 1

    def pushed(self, push: Pushed) -> None:
        ride = self.rides[push.worker]
        if not self.plans:
            if push.stop is not None:
                self.came(ride, push.iteration, push.stop)
        elif ride.stop is not None and push.iteration >= ride.stop:
            ride.reached = self.number

    def closed(self) -> None:
        self.number = 1 + min(ride.reached for ride in self.rides.values())
        self.outdated = False
        if self.plans:
            for worker, ride in self.rides.items():
                ride.begin = self.shard.members[worker].next
            last = self.model.R - 1
            self.plan([(worker, ride.begin, ride.begin + last) for worker, ride in self.rides.items()])

    def joined(self, worker: int) -> None:
        self.rides[worker] = Ride()
        self.outdated = True

    def left(self, worker: int) -> None:
        del self.rides[worker]
        self.outdated = True

    def stop(self, worker: int) -> Stop | None:
        if not self.plans:
            return None
        if self.outdated:
            self.outdated = False
            self.plan_again()
        ride = self.rides[worker]
        if ride.stop is None:
            ride.begin = ride.stop = self.shard.members[worker].next
        return Stop(self.number, ride.stop)

    def plan_again(self) -> None:
        choices = []
        for worker, ride in self.rides.items():
            at = self.shard.members[worker].next
            if ride.stop is not None and ride.stop <= at:
                choices.append((worker, ride.stop, ride.stop))
            elif ride.stop is not None:
                choices.append((worker, at + 1, ride.begin + self.model.R - 1))
        self.plan(choices)

    def plan(self, choices: list[tuple[int, int, int]]) -> None:
        for worker, first, _ in choices:
            self.rides[worker].stop = first
        known = [choice for choice in choices if self.shard.members[choice[0]].intervals]
        if all(first >= last for _, first, last in known):
            return
        picked = PLANNERS[self.model.planner]([self.ends(*choice) for choice in known])
        for (worker, first, last), ahead in zip(known, picked, strict=True):
            self.rides[worker].stop = min(first + ahead - 1, last)

    def ends(self, worker: int, first: int, last: int) -> list[float]:
        """When a worker is expected to finish the iterations from `first` on, `last` at most."""
        account = self.shard.members[worker]
        recent = account.intervals
        pace = recent[-1] if self.model.predict == "last" else sorted(recent)[len(recent) // 2]
        begun = self.shard.now if account.granted_at is None else account.granted_at
        ahead = [min(first + j, last) - account.next for j in range(self.model.R)]
        return [begun + (j + 1) * pace for j in ahead]


RULES: dict[str, type[Rule]] = {
    "bsp": Bsp,
    "asp": Asp,
    "dc_asgd": Asp,
    "ssp": Ssp,
    "dsps": Dsps,
    "dssp": Dssp,
    "drop": Drop,
    "pssp": Pssp,
    "elastic_bsp": Elastic,
    "psp": Psp,
    "esync": Esync,
}
