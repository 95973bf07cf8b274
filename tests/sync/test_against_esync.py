"""The State Server against ESync's algorithm 2, and what a worker makes of its answers."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count
from math import floor, inf
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.sync import EventError, Joined, Left
from paceline.sync.local_steps import Action, Answered, Contribute, LocalSteps, Query, RoundBegan, ServerLost, StepDone
from paceline.sync.local_steps import Step as TrainOn
from paceline.sync.models.esync import ESync
from paceline.sync.state_server import Answer, Began, Queried, StateServer
from tests.oracles import esync as paper

# The State Server alone.


class Happening(NamedTuple):
    """Something that the State Server hears. Times are in quarters, so that they tie now and then."""

    kind: str
    worker: int
    pause: int
    steps: int
    capability: float
    ago: int
    round: int


capabilities = st.sampled_from([*(quarters / 4 for quarters in range(1, 17)), 10.0, inf])
happenings = st.lists(
    st.builds(
        Happening,
        st.sampled_from(["query"] * 12 + ["began"] * 4 + ["left", "joined"]),
        st.integers(0, 5),
        st.integers(0, 3),
        st.integers(0, 3),
        capabilities,
        st.integers(0, 4),
        st.integers(0, 2),
    ),
    min_size=15,
    max_size=60,
)


@given(st.integers(1, 6), st.sampled_from([0.0, 0.001, 0.25, 1.0]), happenings)
@settings(max_examples=700, deadline=None)
def test_the_state_server_answers_as_the_papers_query_state(
    workers: int, epsilon: float, story: list[Happening]
) -> None:
    ours, theirs = StateServer(ESync(epsilon=epsilon), workers), paper.StateServer(workers, epsilon)
    asked: list[tuple[int, int]] = []  # the round and the steps of every query
    now = 0.0
    for it in story:
        now += it.pause / 4
        members = [record.rank for record in theirs.records]
        worker = members[it.worker % len(members)]
        if it.kind == "query":
            finished = now - it.ago / 4
            [answer] = ours.handle(Queried(worker, it.steps, it.capability, finished), now)
            assert answer.ready == theirs.QUERY_STATE(worker, it.steps, it.capability, finished, now)
            assert theirs.slowest is not None
            assert answer.slowest == theirs.slowest.rank
            round_ = theirs.record(worker).round
            asked.append((round_, it.steps))
            in_newest = [steps for its, steps in asked if its == round_ == max(asked)[0]]
            assert answer.most == max([it.steps, *in_newest])
        elif it.kind == "began":
            assert ours.handle(Began(worker, it.round), now) == []
            theirs.RESET_STATE_SERVER(worker, it.round, now)
        elif it.kind == "left" and len(members) > 1:
            assert ours.handle(Left(worker), now) == []
            theirs.remove(worker)
        elif it.kind == "joined" and it.worker not in members:
            assert ours.handle(Joined(it.worker), now) == []
            theirs.add(it.worker)


def test_who_joins_ahead_of_those_that_are_ready_does_not_wait_for_them() -> None:
    """A shard that has closed round 0 lets it begin with round 1; the others wait there for its contribution."""
    server = StateServer(ESync(), 1)
    server.handle(Began(0, 0), 0.0)
    assert server.handle(Queried(0, 1, 5.0, 5.0), 5.0)[0].ready
    server.handle(Joined(1), 6.0)
    server.handle(Began(1, 1), 6.0)
    assert server.handle(Queried(1, 1, 1.0, 7.0), 7.0)[0].why == "slowest-ready"
    server.handle(Began(1, 2), 8.0)
    assert server.handle(Queried(1, 1, 1.0, 9.0), 9.0)[0].why == "pulling"


@given(st.integers(2, 5), st.sampled_from([0.0, 0.25]), st.data())
@settings(max_examples=300, deadline=None)
def test_the_state_server_answers_as_the_papers_query_state_in_rounds_of_workers_whose_speed_changes(
    workers: int, epsilon: float, data: st.DataObject
) -> None:
    """Everyone begins, iterates and asks, round after round, as in algorithm 1; iterations take any time."""
    ours, theirs = StateServer(ESync(epsilon=epsilon), workers), paper.StateServer(workers, epsilon)
    paces = iter(data.draw(st.lists(st.integers(1, 16), min_size=40, max_size=80)))
    for round_ in count():
        begin = 100.0 * round_
        due: list[tuple[float, int, int, float]] = []  # when, who, after how many steps, how long the last one took
        for worker in range(workers):
            if round_ > 0:
                ours.handle(Began(worker, round_), begin)
                theirs.RESET_STATE_SERVER(worker, round_, begin)
            due.append((begin, worker, 0, inf))
        heapq.heapify(due)
        while due:
            now, worker, steps, capability = heapq.heappop(due)
            if round_ == 0 and steps == 0:
                capability = 1.0
            elif steps == 0:
                capability = theirs.record(worker).capability
            [answer] = ours.handle(Queried(worker, steps, capability, now), now)
            assert answer.ready == theirs.QUERY_STATE(worker, steps, capability, now, now)
            if not answer.ready:
                pace = next(paces, 0) / 4
                if not pace:
                    return
                heapq.heappush(due, (now + pace, worker, steps + 1, pace))


# A worker and the State Server.


class Round(NamedTuple):
    steps: int
    ended: float
    done: int  # how many iterations its worker had finished by then, as the loop counts them
    asked: int | None  # the steps of the query that was answered with READY
    reason: str
    most: int


class Cluster:
    """Workers with uneven paces, a State Server a round trip away, and virtual time.

    `falters` are iterations that take longer than their worker's pace: by round, worker and how many it has done.
    A round ends when everyone has contributed; then each begins the next one, once it has its pull. Iterations that are
    given up never end.
    """

    def __init__(
        self,
        model: ESync,
        paces: list[float],
        round_trips: list[float],
        pulls: list[float] | None = None,
        falters: dict[tuple[int, int, int], float] | None = None,
    ) -> None:
        self.paces, self.round_trips = paces, round_trips
        self.falters = falters or {}
        self.pulls = pulls or [0.0] * len(paces)
        self.server = StateServer(model, len(paces))
        self.workers = [LocalSteps(model) for _ in paces]
        self.now = 0.0
        self.round = -1
        self.rounds: list[dict[int, Round]] = []
        self.queries: list[tuple[int, Query, int]] = []  # who asked what, and how many answers it had had by then
        self.begun: list[float] = []  # when each round began
        self.lost = False
        self._iterating: dict[int, int] = {}  # the iteration under way of each worker
        self._done = [0] * len(paces)  # how many iterations of this round each worker has finished
        self._answers = [0] * len(paces)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._begin()

    def run(self, rounds: int) -> None:
        while len(self.rounds) < rounds:
            self.step()

    def step(self) -> None:
        assert self._agenda, f"round {self.round} is stuck"
        self.now, _, action = heapq.heappop(self._agenda)
        action()

    def lose_the_server(self, after: list[float]) -> None:
        """It answers no more, and every worker notices some time later."""
        self.lost = True
        for worker, delay in enumerate(after):
            self._later(delay, partial(self._tell, worker, ServerLost()))

    def _later(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now + delay, next(self._order), action))

    def _begin(self) -> None:
        self.round += 1
        self.begun.append(self.now)
        self.rounds_now: dict[int, Round] = {}
        self._done = [0] * len(self.paces)
        for worker, (pull, round_trip) in enumerate(zip(self.pulls, self.round_trips, strict=True)):
            self._later(pull + round_trip / 2, partial(self._hear, Began(worker, self.round)))
            if pull:
                self._later(pull, partial(self._tell, worker, RoundBegan(self.round)))
            else:
                self._tell(worker, RoundBegan(self.round))

    def _hear(self, began: Began) -> None:
        if not self.lost:
            self.server.handle(began, self.now)

    def _tell(self, worker: int, what: RoundBegan | StepDone | Answered | ServerLost) -> None:
        for action in self.workers[worker].handle(what, self.now):
            self._carry_out(worker, action, what)

    def _carry_out(self, worker: int, action: Action, because: object) -> None:
        match action:
            case TrainOn():
                assert worker not in self._iterating, "two iterations at once"
                number = self._iterating[worker] = next(self._order)
                takes = self.falters.get((self.round, worker, self._done[worker]), self.paces[worker])
                self._later(takes, partial(self._step_done, worker, number))
            case Query():
                self.queries.append((worker, action, self._answers[worker]))
                self._later(self.round_trips[worker] / 2, partial(self._ask, worker, action))
            case Contribute(round=round_, steps=steps, reason=reason, most=most):
                assert round_ == self.round
                assert worker not in self.rounds_now, "two contributions in a round"
                self._iterating.pop(worker, None)
                asked = because.steps if isinstance(because, Answered) else None
                self.rounds_now[worker] = Round(steps, self.now, self._done[worker], asked, reason, most)
                if len(self.rounds_now) == len(self.paces):
                    self.rounds.append(self.rounds_now)
                    self._later(0.0, self._begin)

    def _step_done(self, worker: int, number: int) -> None:
        if self._iterating.get(worker) == number:
            del self._iterating[worker]
            self._done[worker] += 1
            self._tell(worker, StepDone())

    def _ask(self, worker: int, query: Query) -> None:
        if self.lost:
            return
        [answer] = self.server.handle(Queried(worker, query.steps, query.capability, query.finished), self.now)
        self._later(self.round_trips[worker] / 2, partial(self._answer, worker, query, answer))

    def _answer(self, worker: int, query: Query, answer: Answer) -> None:
        self._answers[worker] += 1
        self._tell(worker, Answered(query.round, query.steps, answer.ready, answer.most))


def paces_up_to(quarters: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.integers(1, quarters).map(lambda pace: pace / 4), min_size=1, max_size=6)


paces = st.one_of(paces_up_to(60), paces_up_to(4))  # many iterations in a round trip, or none
epsilons = st.sampled_from([0.0, 0.125, 0.25])
odd_round_trips = st.lists(st.integers(0, 20).map(lambda quarters: quarters / 4 + 0.125), min_size=6, max_size=6)


@given(paces, epsilons)
@settings(max_examples=300, deadline=None)
def test_blocking_workers_wait_less_than_one_iteration_of_their_own_from_the_second_round_on(
    paces: list[float], epsilon: float
) -> None:
    cluster = Cluster(ESync(epsilon=epsilon), paces, [0.0] * len(paces))
    cluster.run(rounds=6)
    for finished in cluster.rounds[1:]:
        last = max(round_.ended for round_ in finished.values())
        for worker, round_ in finished.items():
            assert last - round_.ended < paces[worker] + epsilon


def test_by_default_that_holds_for_iterations_of_milliseconds_too() -> None:
    """A slack of a millisecond would cost every fast worker an iteration that fits."""
    paces = [0.0031] * 4 + [0.45] * 2
    cluster = Cluster(ESync(), paces, [0.0] * len(paces))
    cluster.run(rounds=3)
    for finished in cluster.rounds[1:]:
        last = max(round_.ended for round_ in finished.values())
        assert all(last - finished[worker].ended < paces[worker] for worker in range(4))


@given(paces, epsilons)
@settings(max_examples=300, deadline=None)
def test_blocking_workers_do_as_many_iterations_as_fit_before_the_slowest_has_done_one(
    paces: list[float], epsilon: float
) -> None:
    """From the second round on. One that would end with the slowest still fits if epsilon is 0.

    Who ends last has heard how many the fastest did; the others, how many it had done by then.
    """
    cluster = Cluster(ESync(epsilon=epsilon), paces, [0.0] * len(paces))
    cluster.run(rounds=5)
    slowest = max(paces)
    for begun, finished in zip(cluster.begun[1:], cluster.rounds[1:], strict=False):
        assert max(round_.ended for round_ in finished.values()) == begun + slowest
        for worker, round_ in finished.items():
            fitting = [k for k in range(1, 61) if k * paces[worker] + epsilon <= slowest]
            assert round_.steps == max(fitting, default=1)
            assert round_.steps <= round_.most <= max(one.steps for one in finished.values())
        assert max(round_.most for round_ in finished.values()) == max(round_.steps for round_ in finished.values())
        for worker, round_ in finished.items():
            if all(one.ended < round_.ended for other, one in finished.items() if other != worker):
                assert round_.most == max(one.steps for one in finished.values())


two_kinds = st.tuples(
    st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(10, 40)
)  # how many are fast and how many slow, the pace of the fast in quarters, and how much longer the slow take, in these


@given(two_kinds, epsilons)
@settings(max_examples=200, deadline=None)
def test_equally_slow_workers_do_one_iteration_in_the_first_round_if_others_are_known_to_be_faster(
    kinds: tuple[int, int, int, int], epsilon: float
) -> None:
    """Though nobody's pace is known when it begins, nobody waits for a second iteration of a slow one."""
    fast, slow, quarters, more = kinds
    pace = quarters / 4
    cluster = Cluster(ESync(epsilon=epsilon), [pace] * fast + [pace + more * pace] * slow, [0.0] * (fast + slow))
    cluster.run(rounds=1)
    assert [cluster.rounds[0][worker].steps for worker in range(fast, fast + slow)] == [1] * slow


@given(two_kinds, epsilons, st.integers(1, 10), st.integers(2, 40))
@settings(max_examples=200, deadline=None)
def test_no_fast_worker_ends_the_first_round_early_though_one_falters(
    kinds: tuple[int, int, int, int], epsilon: float, done: int, times: int
) -> None:
    """One iteration that takes many times as long as others does not make its worker a slow one, by which others go."""
    fast, slow, quarters, _ = kinds
    pace = quarters / 4
    paces = [pace] * fast + [60 * pace] * slow
    cluster = Cluster(ESync(epsilon=epsilon), paces, [0.0] * len(paces), falters={(0, 0, done): times * pace})
    cluster.run(rounds=1)
    last = max(round_.ended for round_ in cluster.rounds[0].values())
    assert all(last - cluster.rounds[0][worker].ended < pace + epsilon for worker in range(fast))


@given(two_kinds, epsilons, st.data())
@settings(max_examples=300, deadline=None)
def test_fast_workers_go_by_that_of_equally_slow_ones_which_is_done_last(
    kinds: tuple[int, int, int, int], epsilon: float, data: st.DataObject
) -> None:
    """Pulls are not done at the same time, but all before a slow worker that has begun can be done."""
    fast, slow, quarters, more = kinds
    paces = [quarters / 4] * fast + [quarters / 4 * (1 + more)] * slow
    several = st.integers(0, quarters * (more - 1)).map(lambda pull: pull / 4)
    pulls = data.draw(st.lists(several, min_size=len(paces), max_size=len(paces)))
    cluster = Cluster(ESync(epsilon=epsilon), paces, [0.0] * len(paces), pulls)
    cluster.run(rounds=5)
    for finished in cluster.rounds[1:]:
        last = max(round_.ended for round_ in finished.values())
        assert all(last - finished[worker].ended < paces[worker] + epsilon for worker in range(fast))


@given(paces, odd_round_trips, st.integers(1, 4), st.sampled_from(["blocking", "nonblocking"]))
@settings(max_examples=300, deadline=None)
def test_nobody_does_more_than_max_steps(
    paces: list[float], round_trips: list[float], max_steps: int, query: str
) -> None:
    model = ESync(max_steps=max_steps, query=query)  # type: ignore[arg-type]
    cluster = Cluster(model, paces, round_trips[: len(paces)])
    cluster.run(rounds=5)
    for finished in cluster.rounds:
        assert all(1 <= round_.steps <= max_steps for round_ in finished.values())


@given(paces, odd_round_trips, epsilons)
@settings(max_examples=300, deadline=None)
def test_a_late_ready_for_iteration_k_ends_the_round_with_those_done_meanwhile(
    paces: list[float], round_trips: list[float], epsilon: float
) -> None:
    """READY for k counts iterations 1 to k + delta - 1, where delta - 1 fit into the round trip; none before k = 1."""
    cluster = Cluster(ESync(epsilon=epsilon, query="nonblocking"), paces, round_trips[: len(paces)])
    cluster.run(rounds=5)
    for finished in cluster.rounds:
        for worker, round_ in finished.items():
            assert round_.asked is not None
            assert round_.asked >= 1
            assert round_.steps == round_.done == round_.asked + floor(round_trips[worker] / paces[worker])
            assert round_.most >= round_.steps


def test_an_answer_of_an_earlier_round_changes_nothing_and_an_iteration_given_up_never_ends() -> None:
    """Three queries are open when the round ends; the READY to the last comes when the next round has asked as much."""
    worker = LocalSteps(ESync(query="nonblocking"))
    worker.handle(RoundBegan(0), 0.0)
    for now in 1.0, 2.0:
        worker.handle(StepDone(), now)
    [ended] = worker.handle(Answered(0, 1, ready=True, most=7), 2.5)
    assert ended == Contribute(0, 2, "ready", most=7)
    with pytest.raises(EventError):
        worker.handle(StepDone(), 3.0)
    worker.handle(RoundBegan(1), 4.0)
    for now in 4.5, 5.0:
        worker.handle(StepDone(), now)
    assert worker.handle(Answered(0, 2, ready=True, most=7), 5.25) == []
    assert worker.handle(Answered(1, 1, ready=True, most=1), 5.25) == [Contribute(1, 2, "ready", most=2)]


@given(paces, odd_round_trips)
@settings(max_examples=200, deadline=None)
def test_a_nonblocking_workers_capability_includes_the_round_trip_once_it_is_known(
    paces: list[float], round_trips: list[float]
) -> None:
    cluster = Cluster(ESync(query="nonblocking"), paces, round_trips[: len(paces)])
    cluster.run(rounds=4)
    trained = set()
    for worker, query, answers in cluster.queries:
        if query.steps:
            trained.add(worker)
        expected = paces[worker] if worker in trained else inf
        assert query.capability == expected + (round_trips[worker] if answers else 0)


@given(paces, odd_round_trips)
@settings(max_examples=200, deadline=None)
def test_a_blocking_workers_capability_is_its_last_iteration_alone(
    paces: list[float], round_trips: list[float]
) -> None:
    cluster = Cluster(ESync(), paces, round_trips[: len(paces)])
    cluster.run(rounds=4)
    trained = set()
    for worker, query, _ in cluster.queries:
        if query.steps:
            trained.add(worker)
        assert query.capability == (paces[worker] if worker in trained else inf)


@given(
    paces,
    odd_round_trips,
    st.sampled_from(["blocking", "nonblocking"]),
    st.integers(0, 150),
    st.lists(st.integers(0, 12).map(float), min_size=6, max_size=6),
)
@settings(max_examples=400, deadline=None)
def test_without_the_state_server_every_round_has_one_local_step_and_nobody_is_stuck(
    paces: list[float], round_trips: list[float], query: str, events: int, noticed: list[float]
) -> None:
    """The server is lost after any number of events; workers notice at different times."""
    cluster = Cluster(ESync(query=query), paces, round_trips[: len(paces)])  # type: ignore[arg-type]
    for _ in range(events):
        cluster.step()
    cluster.lose_the_server(noticed[: len(paces)])
    all_know = cluster.now + max(noticed)
    while cluster.now <= all_know:
        cluster.step()
    first = cluster.round + 1  # the first round that begins after everybody knows
    cluster.run(rounds=first + 5)
    for begun, finished in zip(cluster.begun[first:], cluster.rounds[first:], strict=False):
        assert [round_.steps for round_ in finished.values()] == [1] * len(paces)
        assert {(round_.reason, round_.most) for round_ in finished.values()} == {("server lost", 1)}
        assert max(round_.ended for round_ in finished.values()) == begun + max(paces)


@given(
    st.integers(1, 100),
    st.integers(1, 100),
    st.floats(1, 1000),
    st.one_of(st.just(0.0), st.floats(0, 10), st.just(inf)),
)
def test_no_workers_changes_weigh_less_than_as_they_are_nor_more_than_an_iteration_of_the_fastest(
    steps: int, most: int, fallen: float, balance: float
) -> None:
    weight = ESync(balance=balance).weight(steps, most, fallen)
    assert 1.0 <= weight <= max(most / steps, 1.0)
    assert weight <= max(balance * fallen, 1.0)
    assert weight in (1.0, most / steps, balance * fallen)


def test_a_rate_that_has_fallen_to_nothing_balances_all() -> None:
    assert ESync(balance=1.0).weight(1, 95, inf) == 95.0
    assert ESync().weight(1, 95, inf) == 1.0
