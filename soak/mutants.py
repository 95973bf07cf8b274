"""Planted bugs: small, plausible mistakes in the core, each of which some test must notice.

Each replaces one piece of source text, which must occur exactly once, so that a mutant cannot silently lose its place.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str  # below the folder that the mutant is for
    old: str
    new: str
    seeds: int = 1000  # in so many of the simulator's runs under faults it shows; 0: it cannot


MUTANTS = [
    # The models' predicates.
    Mutant("bsp lets one iteration ahead", "models/bsp.py", "iteration < view.clock", "iteration <= view.clock"),
    Mutant("ssp's s is off by one", "models/ssp.py", "view.clock + self.s", "view.clock + self.s + 1"),
    Mutant(
        "ssp's soft release is one round late",
        "models/ssp.py",
        "pull.iteration - self.s)",
        "pull.iteration - self.s + 1)",
    ),
    Mutant(
        "drop closes a gradient too early", "models/drop.py", "min(self.n_t, view.live)", "min(self.n_t, view.live) - 1"
    ),
    Mutant("drop does not jump", "models/drop.py", "jumps: ClassVar[bool] = True", "jumps: ClassVar[bool] = False"),
    Mutant("pssp holds below s", "models/pssp.py", "if gap < self.s:", "if gap < self.s - 1:"),
    Mutant("pssp's coin is the wrong way round", "models/pssp.py", ">= self.chance(", "< self.chance("),
    Mutant(
        "pssp's coin differs from shard to shard",
        "models/pssp.py",
        'salt = view.index if self.coin == "shard" else -1',
        "salt = view.index",
    ),
    Mutant("dynamic pssp relaxes as the gap grows", "models/pssp.py", "exp(self.s - gap)", "exp(gap - self.s)"),
    Mutant(
        "dsps forgets its lower bound",
        "models/dsps.py",
        "min(max(spread, self.s_min), self.s_max)",
        "min(spread, self.s_max)",
    ),
    Mutant(
        "dssp lets run on one more",
        "models/dssp.py",
        "i + self.extra(view, worker)",
        "i + self.extra(view, worker) + 1",
    ),
    Mutant("psp's count is not reset", "models/psp.py", "view.memory.gradients = 0", "pass"),
    Mutant("psp's deadline is not reset", "models/psp.py", "view.memory.deadline = None", "pass"),
    Mutant(
        "psp waits for all and forgets c",
        "models/psp.py",
        "if max(open_round.gradients, past) < self.c:",
        "if past < view.live:",
    ),
    Mutant(
        "psp stays behind what workers have left behind",
        "models/psp.py",
        "max(open_round.gradients, past) < self.c",
        "open_round.gradients < self.c",
    ),
    Mutant(
        "psp sums into the gradient's own round",
        "models/psp.py",
        "        return view.clock\n",
        "        return push.iteration\n",
    ),
    # ElasticBSP's plan.
    Mutant(
        "a shard that follows holds nobody",
        "models/elastic_bsp.py",
        "        if stop is None or pull.iteration < stop.iteration:\n",
        "        if True:\n",
    ),
    Mutant("a stop lies one too far", "models/elastic_bsp.py", "min(first + j - 1, last)", "min(first + j, last + 1)"),
    Mutant(
        "who left is still waited for",
        "models/elastic_bsp.py",
        "        self.reach(self.riders.pop(worker), self.number)",
        "        self.riders.pop(worker)",
    ),
    Mutant(
        "a worker is held unawares",
        "models/elastic_bsp.py",
        "            rider.begin = rider.stop = view.iteration(worker)  # nobody",
        "            rider.begin = rider.stop = view.iteration(worker) - 1  # nobody",
    ),
    Mutant(
        "plans are not numbered by the epoch",
        "models/elastic_bsp.py",
        "Superstep(view.epoch if view.index == 0 else 0)",
        "Superstep(0)",
    ),
    Mutant(
        "a shard that starts to follow forgets who has come",
        "models/elastic_bsp.py",
        "elif view.index != 0 and told is not None:",
        "elif False:",
    ),
    # The machine.
    Mutant(
        "only one round closes at a time",
        "shard.py",
        "        while progress.members and (",
        "        if progress.members and (",
    ),
    Mutant(
        "a round closes before its gradients are summed",
        "shard.py",
        "            gradients += self._sums.pop(round_)\n",
        "            self._sums.pop(round_)\n",
    ),
    Mutant(
        "what a round has summed is never cleared",
        "shard.py",
        "gradients += self._sums.pop(round_)",
        "gradients += self._sums[round_]",
    ),
    Mutant(
        "a held pull is forgotten",
        "shard.py",
        "        self._file(held, member)\n        return [Hold",
        "        return [Hold",
    ),
    Mutant(
        "a released pull is released again",
        "shard.py",
        "in self._filed.pop(round_).items():",
        "in self._filed[round_].items():",
    ),
    Mutant(
        "a change of model answers twice",
        "shard.py",
        "        self._filed.clear()\n        commands = self._settle",
        "        commands = self._settle",
    ),
    Mutant(
        "a change of model forgets what waits",
        "shard.py",
        "            else:\n                self._file(held, member)\n        return commands",
        "        return commands",
    ),
    Mutant(
        "a change of model does not judge again",
        "shard.py",
        "            if self.model.may_pull(self.view, held.pull):\n                commands.append",
        "            if False:\n                commands.append",
    ),
    Mutant(
        "a change of update rule cuts a round in two",
        "shard.py",
        "fresh = max(self._progress.fastest, self._progress.clock, self._summed)",
        "fresh = max(self._progress.clock, self._summed)",
    ),
    Mutant(
        "a change of update rule cuts a round in two that somebody who has left is part of",
        "shard.py",
        "fresh = max(self._progress.fastest, self._progress.clock, self._summed)",
        "fresh = max(self._progress.fastest, self._progress.clock)",
    ),
    Mutant(
        "a repeated push is applied again",
        "shard.py",
        "if sequence <= member.sequence:",
        "if sequence < member.sequence:",
    ),
    Mutant(
        "a repeated late push is told that it was applied",
        "shard.py",
        '"dropped" if sequence in self._late.get(worker, ()) else "applied"',
        '"applied"',
    ),
    Mutant(
        "a zombie is let in",
        "shard.py",
        "if member is None or member.incarnation != push.incarnation:",
        "if member is None:",
    ),
    Mutant(
        "the dead may come back as they were",
        "shard.py",
        "if incarnation <= (self._gone.get(worker, -1)",
        "if incarnation < (self._gone.get(worker, -1)",
    ),
    Mutant(
        "a death does not close rounds",
        "shard.py",
        '        self._remove(member)\n        return self._settle([], "left", event.worker)',
        "        self._remove(member)\n        return []",
    ),
    Mutant(
        "the dead are answered",
        "shard.py",
        "                if member.held is None:  # it has left\n                    continue\n",
        "",
    ),
    Mutant(
        "a joiner starts at 0",
        "shard.py",
        "start = max(progress.clock, progress.slowest if progress.members else 0, event.iteration or 0)",
        "start = event.iteration or 0",
    ),
    Mutant(
        "a joiner is not told where to start",
        "shard.py",
        "onward = max(i + 1, self._starts.get(member.worker, 0)) if self._starts else i + 1",
        "onward = i + 1",
    ),
    Mutant("a new life has the drops of the last", "shard.py", "self._late.pop(member.worker, None)", "pass"),
    Mutant("a new life has the start of the last", "shard.py", "self._starts.pop(member.worker, None)", "pass"),
    Mutant("a late gradient is taken", "shard.py", "if summed and i < progress.clock:", "if False:"),
    Mutant("staleness counts from the beginning", "shard.py", "        member.seen = version\n", ""),
    Mutant(
        "a timer that fires early is not set again",
        "shard.py",
        "        if event.timer == self._timer:\n            self._alarm = None\n",
        "",
    ),
    Mutant(
        "a round whose gradients are of the gone stays open",
        "shard.py",
        "return self.model.supersteps or self._progress.clock in self._sums",
        "return self.model.supersteps",
    ),
    Mutant("a timer is set for a time that has passed", "shard.py", " and at > view.now:", ":"),
    Mutant(
        "a repeated pull is answered while the first waits",
        "shard.py",
        "if member.held is not None and i in [held",
        "if member.held is not None and i > member.granted and i in [held",
    ),
    # Who is where.
    Mutant("the oldest intervals are kept", "progress.py", "[-8 * wanted :]", "[: 8 * wanted]"),
    Mutant(
        "an answer to one pull forgets the one before",
        "progress.py",
        "                later.before = held.before",
        "                later.before = None",
    ),
    Mutant(
        "those who left still count as past the round",
        "progress.py",
        "        if at > self.clock:\n            self.passed -= 1\n",
        "",
    ),
    Mutant(
        "the slowest is not looked for again",
        "progress.py",
        "            self.slowest = at + 1 if at + 1 in self._crowds else min(self._crowds)",
        "            self.slowest = at + 1",
    ),
    Mutant(
        "an advance does not recount",
        "progress.py",
        "                self.passed -= crowd.size",
        "                pass",
    ),
    # The workers' machines, and the State Server.
    Mutant(
        "a worker starts with a block too few", "partial_pull.py", "ceil(b * blocks - 1e-9)", "ceil(b * blocks - 1)"
    ),
    Mutant(
        "a late block is thrown away",
        "partial_pull.py",
        "        if onward > newest:\n",
        "        if onward > newest and onward >= (self._wanted or 0):\n",
    ),
    Mutant(
        "a worker that fell behind does not jump",
        "partial_pull.py",
        "return Start(max(self._newest), take",
        "return Start(wanted, take",
    ),
    Mutant(
        "a new share ends a wait that is under way",
        "partial_pull.py",
        "        self._from_next = _checked(len(self._newest), b, tau)\n",
        "        self._from_next = self.needed, self.tau = _checked(len(self._newest), b, tau)\n",
        seeds=0,  # there a run has one share
    ),
    Mutant("a worker keeps its stop to itself", "worker.py", "self.incarnation, self._stop)", "self.incarnation)"),
    Mutant(
        "the fastest is taken for the slowest",
        "state_server.py",
        "return (-capability, -record.end, worker)",
        "return (capability, -record.end, worker)",
    ),
    Mutant(
        "of equally slow workers the first to be done is the slowest",
        "state_server.py",
        "return (-capability, -record.end, worker)",
        "return (-capability, record.end, worker)",
    ),
    Mutant(
        "a worker that is ready is done later",
        "state_server.py",
        "return self.finished if self.ready else self.finished + self.capability",
        "return self.finished + self.capability",
    ),
    Mutant("who is not known is always slower", "state_server.py", "UNEVEN = 10.0", "UNEVEN = inf"),
    Mutant("who is not known is never slower", "state_server.py", "UNEVEN = 10.0", "UNEVEN = 0.0"),
    Mutant("who falters is slow", "state_server.py", "asking.shortest <= UNEVEN", "asking.capability <= UNEVEN"),
    Mutant(
        "ready is never reset",
        "state_server.py",
        "record.round, record.finished, record.ready = round_, now, False",
        "record.round, record.finished = round_, now",
    ),
    Mutant(
        "an answer of an earlier round counts",
        "local_steps.py",
        " if answer.round == self._round else None",
        "",
        seeds=1500,
    ),
    Mutant(
        "the fastest of an earlier round counts",
        "state_server.py",
        "self._newest, self._most = round_, 0",
        "self._newest = round_",
    ),
    Mutant(
        "nobody hears of the fastest",
        "local_steps.py",
        'self._contribute("ready", answer.most)',
        'self._contribute("ready")',
    ),
    # The planner.
    Mutant(
        "zipline starts before everyone has an end",
        "zipline.py",
        "np.maximum(since, rank[:, 0].max(), out=since)",
        "np.maximum(since, rank[:, 0].min(), out=since)",
    ),
    Mutant(
        "zipline takes the last of equal plans",
        "zipline.py",
        "best = waits.argmin()\n    at = latest",
        "best = len(waits) - 1 - waits[::-1].argmin()\n    at = latest",
    ),
    Mutant(
        "a scan takes the last of a worker's equal ends",
        "zipline.py",
        "(ends < picked[:, best, None]).sum(axis=1) + 1",
        "nearest[:, best] + 1",
        seeds=3500,
    ),
]
