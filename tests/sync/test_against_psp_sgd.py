"""A shard under `psp`, and a worker's partial pull, against PSP-SGD's algorithm 1."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import Advance, Apply, Command, Drop, Grant, Pulled, Pushed, SetTimer, Shard, TimerFired, parse
from paceline.sync.partial_pull import Arrived, Asked, PartialPull, SetPullTimer, Start
from tests.oracles import psp_sgd as paper

# The server.


class Run(NamedTuple):
    """Workers that push, pull and go on, at times drawn: who acts next, and how long after the last."""

    workers: int
    c: int
    tau: float
    shares: list[int]  # how often each worker gets a turn, against the others
    turns: bytes


@st.composite
def runs(draw: st.DrawFn) -> Run:
    n = draw(st.integers(1, 6))
    shares = draw(st.lists(st.sampled_from([1, 2, 4, 12]), min_size=n, max_size=n))
    tau = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 8.0]))
    return Run(n, draw(st.integers(1, n + 1)), tau, shares, draw(st.binary(min_size=100, max_size=360)))


class ServerPair:
    """A shard and the paper's server, side by side, and the workers that talk to both."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.shard = Shard(parse(f"psp(c={run.c}, tau_push={run.tau})"), run.workers)
        self.server = paper.Server(run.workers, run.c, run.tau)
        self.now = 0.0
        self.timers: list[SetTimer] = []
        self.todo: dict[int, tuple[str, int]] = dict.fromkeys(range(run.workers), ("push", 0))  # who is not waiting
        self.pulling: dict[int, int] = {}  # the progress of who is

    def play(self) -> None:
        tickets = [n for n, share in enumerate(self.run.shares) for _ in range(share)]
        for turn, pause in zip(self.run.turns[::2], self.run.turns[1::2], strict=False):
            at = self.now + pause % 8 / 4
            self.fire(at, ties=pause >= 128)
            if not self.todo:  # everyone waits, so a timer must be on its way
                at = max(at, min(timer.at for timer in self.timers))
                self.fire(at, ties=True)
            n = tickets[turn % len(tickets)]
            while n not in self.todo:
                n = (n + 1) % self.run.workers
            self.now = at
            self.act(n)

    def fire(self, until: float, ties: bool) -> None:
        """Fire the timers that are due before the next message; if it comes at the same time, before or after it."""
        while due := [timer for timer in self.timers if timer.at < until or (ties and timer.at == until)]:
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.now = timer.at
            commands = self.shard.handle(TimerFired(timer.timer), self.now)
            self.server.receive(self.now, None)
            self.compare(commands)

    def act(self, n: int) -> None:
        kind, i = self.todo.pop(n)
        if kind == "push":
            self.todo[n] = "pull", i
            commands = self.shard.handle(Pushed(n, i), self.now)
            round_, dropped = self.server.t, len(self.server.dropped)
            self.server.receive(self.now, (n, i))
            if len(self.server.dropped) > dropped:
                drops = [command for command in commands if isinstance(command, Drop)]
                assert [(drop.worker, drop.iteration, drop.reason.cause) for drop in drops] == [(n, i, "late")]
                assert not any(isinstance(command, Apply) for command in commands)
            else:
                applied = [command for command in commands if isinstance(command, Apply)]
                assert [(apply.worker, apply.iteration, apply.round) for apply in applied] == [(n, i, round_)]
                assert not any(isinstance(command, Drop) for command in commands)
        else:
            self.pulling[n] = i
            commands = self.shard.handle(Pulled(n, i), self.now)
        self.compare(commands)

    def compare(self, commands: list[Command]) -> None:
        """A worker that asks has the parameters once they are broadcast with a timestamp newer than its gradient's."""
        assert self.shard.clock == self.server.t == self.server.broadcast[-1]
        closed = [command for command in commands if isinstance(command, Advance)]
        assert sum(advance.to - advance.iteration for advance in closed) == len(self.server.updates)
        assert [advance.gradients for advance in closed] == [len(update) for update in self.server.updates]
        self.server.updates.clear()
        grants = {command.worker: command for command in commands if isinstance(command, Grant)}
        assert {n: grant.iteration for n, grant in grants.items()} == {
            n: i for n, i in self.pulling.items() if i < self.server.t
        }
        for n, grant in grants.items():
            assert grant.next == self.server.t
            self.todo[n] = "push", grant.next
            del self.pulling[n]
        assert {pull.worker: pull.iteration for pull in self.shard.held} == self.pulling
        timers = [command for command in commands if isinstance(command, SetTimer)]
        assert all(timer.at > self.now for timer in timers), "a timer for what could be decided at once"
        self.timers += timers
        assert self.server.timeout == inf or self.server.timeout in [timer.at for timer in self.timers]


@given(runs())
@settings(max_examples=1000, deadline=None)
def test_a_shard_under_psp_takes_drops_and_closes_as_the_papers_server(run: Run) -> None:
    ServerPair(run).play()


# The worker.

times = st.integers(0, 8).map(lambda quarters: quarters / 4)


class Arrival(NamedTuple):
    """What happens next to a worker: a block comes, or, if it computes, it may be done."""

    pause: float
    block: int
    age: int  # against the timestamp that the worker waits for, or will wait for next
    done: bool
    timer_first: bool


def arrivals(newest: int) -> st.SearchStrategy[list[Arrival]]:
    ages = st.sampled_from([-2, -1, 0, 0, 0, 0, *range(1, newest + 1)])
    arrival = st.builds(Arrival, times, st.integers(0, 999), ages, st.booleans(), st.booleans())
    return st.lists(arrival, max_size=60)


class WorkerPair:
    """A partial pull and the paper's worker, side by side."""

    def __init__(self, blocks: int, percent: int, tau: float) -> None:
        self.blocks = blocks
        self.pull = PartialPull(blocks, percent / 100, tau)
        self.worker = paper.Worker(blocks, percent, tau)
        self.now = 0.0
        self.timers: list[SetPullTimer] = []
        self.starts: list[Start] = []
        self.wanted = 0  # the timestamp that the worker waits for, or will wait for next
        self.newest = [-1] * blocks  # the newest timestamp that has come of each block
        self.compare(self.pull.handle(Asked(-1), self.now))

    def play(self, story: list[Arrival]) -> None:
        for arrival in story:
            at = self.now + arrival.pause
            self.fire(at, arrival.timer_first)
            self.now = at
            if self.worker.computing and arrival.done:
                commands = self.pull.handle(Asked(self.wanted - 1), at)
                self.worker.computed(at, self.wanted)
            else:
                block, timestamp = arrival.block % self.blocks, max(0, self.wanted + arrival.age)
                self.newest[block] = max(self.newest[block], timestamp)
                commands = self.pull.handle(Arrived(block, timestamp), at)
                self.worker.receive(at, (block, timestamp))
            self.compare(commands)

    def fire(self, until: float, ties: bool) -> None:
        while due := [timer for timer in self.timers if timer.at < until or (ties and timer.at == until)]:
            timer = min(due, key=lambda timer: timer.at)
            self.timers.remove(timer)
            self.now = timer.at
            commands = self.pull.handle(TimerFired(timer.timer), self.now)
            self.worker.receive(self.now, None)
            self.compare(commands)

    def compare(self, commands: list[Start | SetPullTimer]) -> None:
        assert self.pull.waiting == (not self.worker.computing)
        starts = [command for command in commands if isinstance(command, Start)]
        for start in starts:
            assert list(start.missing) == self.worker.missing
            self.check(start)
            self.starts.append(start)
            self.wanted = start.iteration + 1
        timers = [command for command in commands if isinstance(command, SetPullTimer)]
        assert all(timer.at > self.now for timer in timers), "a timer for what could be decided at once"
        self.timers += timers
        if not self.worker.computing:
            assert self.worker.timeout == inf or self.worker.timeout in [timer.at for timer in self.timers]

    def check(self, start: Start) -> None:
        """Without newer timestamps than the wanted one, the iteration is the paper's."""
        assert start.iteration == self.worker.t


class JumpingPair(WorkerPair):
    """The same with newer timestamps, where the worker goes on with the newest of them."""

    def check(self, start: Start) -> None:
        assert start.iteration == max(self.newest) >= self.worker.t


shapes = st.tuples(st.integers(1, 6), st.integers(1, 100), st.sampled_from([0.0, 0.25, 1.0, 4.0]))


@given(shapes, arrivals(newest=0))
@settings(max_examples=700, deadline=None)
def test_a_worker_starts_when_the_papers_does_and_without_the_same_blocks(
    shape: tuple[int, int, float], story: list[Arrival]
) -> None:
    WorkerPair(*shape).play(story)


@given(shapes, arrivals(newest=3))
@settings(max_examples=700, deadline=None)
def test_a_worker_starts_when_the_papers_does_also_after_jumps_to_newer_timestamps(
    shape: tuple[int, int, float], story: list[Arrival]
) -> None:
    JumpingPair(*shape).play(story)


def test_a_worker_needs_exactly_b_percent_of_the_blocks() -> None:
    """Every whole percentage of up to 64 blocks, against the paper's worker with no timeout."""
    wrong = []
    for blocks in range(1, 65):
        for percent in range(1, 101):
            worker, pull = paper.Worker(blocks, percent, 0.0), PartialPull(blocks, percent / 100, 0.0)
            pull.handle(Asked(-1), 0.0)
            for block in range(blocks):
                worker.receive(0.0, (block, 0))
                if worker.computing != bool(pull.handle(Arrived(block, 0), 0.0)):
                    wrong.append((blocks, percent, block + 1))
                    break
                if worker.computing:
                    break
    assert not wrong, f"(blocks, percent, after how many they differ): {wrong}"


def test_a_timer_that_fires_early_is_set_again() -> None:
    pull = PartialPull(2, 0.5, tau=3.0)
    pull.handle(Asked(-1), 0.0)
    (timer,) = pull.handle(Arrived(0, 0), 1.0)
    assert isinstance(timer, SetPullTimer)
    (again,) = pull.handle(TimerFired(timer.timer), 2.0)
    assert isinstance(again, SetPullTimer)
    assert again.at == timer.at == 4.0
    (start,) = pull.handle(TimerFired(again.timer), 4.0)
    assert start == Start(0, (0,), (1,), "timeout")


@given(
    blocks=st.integers(1, 5),
    story=st.lists(
        st.one_of(
            st.tuples(st.just("arrived"), st.integers(0, 4), st.integers(-2, 1)),
            st.tuples(st.just("change"), st.integers(1, 100), st.sampled_from([0.0, 2.0])),
            st.tuples(st.just("fire"), st.just(0), st.just(0)),
        ),
        max_size=80,
    ),
)
@settings(max_examples=500, deadline=None)
def test_a_new_share_is_in_force_from_the_next_time_on_that_the_worker_asks(
    blocks: int, story: list[tuple[str, int, float]]
) -> None:
    """Beside a list of all that came: it starts exactly when the share that was in force as it asked says so."""
    pull, now, wanted, told = PartialPull(blocks), 0.0, 0, (100, 0.0)
    (percent, tau), newest, enough_since, starts = told, [-1] * blocks, None, pull.handle(Asked(-1), 0.0)
    assert starts == []
    for what, first, second in story:
        now += 1.0
        commands: list[Start | SetPullTimer] = []
        if what == "change":
            told = first, second
            pull.change(first / 100, second)
        elif what == "fire":
            commands = pull.handle(TimerFired(pull._timer), now)
        else:
            newest[first % blocks] = max(newest[first % blocks], wanted + int(second))
            commands = pull.handle(Arrived(first % blocks, wanted + int(second)), now)
        fresh = sum(age >= wanted for age in newest)
        enough = 100 * fresh >= percent * blocks and fresh > 0
        enough_since = (now if enough_since is None else enough_since) if enough else None
        due = enough_since is not None and now >= enough_since + tau and (what != "change")
        expected = (fresh == blocks and what == "arrived") or due
        assert [type(command) for command in commands if isinstance(command, Start)] == [Start] * expected
        if not pull.waiting:  # it computes no time
            wanted = max(newest) + 1
            (percent, tau), enough_since = told, None
            assert pull.handle(Asked(wanted - 1), now) == []


@given(st.integers(1, 40), st.floats(0, 0.01, exclude_min=True))
@settings(max_examples=100, deadline=None)
def test_however_small_the_share_a_worker_does_not_start_before_a_block_has_come(blocks: int, b: float) -> None:
    pull = PartialPull(blocks, b)
    assert pull.handle(Asked(-1), 0.0) == []
    assert [type(command) for command in pull.handle(Arrived(0, 0), 0.0)] == [Start]


class Using(JumpingPair):
    """Keeps account of which timestamp of each block is in use, from nothing but `take`."""

    def __init__(self, blocks: int, percent: int, tau: float) -> None:
        self.using = [-1] * blocks
        super().__init__(blocks, percent, tau)

    def check(self, start: Start) -> None:
        for block in start.take:
            assert self.using[block] < self.newest[block], "what is in use already is taken again"
            self.using[block] = self.newest[block]
        assert self.using == self.newest


@given(shapes, arrivals(newest=2))
@settings(max_examples=500, deadline=None)
def test_unlike_in_the_paper_every_block_that_has_come_is_in_use_from_the_next_start_on(
    shape: tuple[int, int, float], story: list[Arrival]
) -> None:
    Using(*shape).play(story)


def test_unlike_in_the_paper_a_late_block_is_taken_at_the_next_start() -> None:
    """Block 1 misses iterations 0 and 1. What comes of it during 1, with timestamp 0 or 1, is used in 2."""
    for late in 0, 1:
        pull, worker = PartialPull(2, b=0.5), paper.Worker(2, 50, 0.0)
        for t in 0, 1:
            pull.handle(Asked(t - 1), float(t))
            [start] = pull.handle(Arrived(0, t), float(t))
            assert start == Start(t, take=(0,), missing=(1,), reason="share")
            worker.receive(float(t), (0, t))
            if t == 0:
                worker.computed(1.0)
        assert pull.handle(Arrived(1, late), 1.5) == []
        worker.receive(1.5, (1, late))
        assert pull.handle(Asked(1), 2.0) == []
        worker.computed(2.0)
        assert pull.handle(Arrived(0, 2), 2.5) == [Start(2, take=(0, 1), missing=(1,), reason="share")]
        worker.receive(2.5, (0, 2))
        assert worker.computing
        assert worker.w == [2, -1], "the paper's worker has thrown it away"


def test_unlike_in_the_paper_a_worker_jumps_to_the_newest_timestamp_it_sees() -> None:
    """It waits for 1 and gets a block of 5: it computes 5, and asks for 6 then; the paper's computes 1, then 2."""
    pull, worker = PartialPull(2, b=1.0), paper.Worker(2, 100, 0.0)
    pull.handle(Asked(0), 0.0)
    for block in 0, 1:
        worker.receive(0.0, (block, 0))
    worker.computed(0.0)
    assert pull.handle(Arrived(0, 5), 1.0) == []
    assert pull.handle(Arrived(1, 1), 1.0) == [Start(5, take=(0, 1), missing=(), reason="all")]
    for block, timestamp in (0, 5), (1, 1):
        worker.receive(1.0, (block, timestamp))
    assert worker.computing
    assert (worker.t, worker.w) == (1, [5, 1])
    pull.handle(Asked(5), 2.0)
    assert pull.handle(Arrived(1, 5), 2.0) == [], "a block of 5 is late for 6"
    assert pull.handle(Arrived(1, 6), 2.0) == []
    assert pull.handle(Arrived(0, 6), 2.0) == [Start(6, take=(0, 1), missing=(), reason="all")]
