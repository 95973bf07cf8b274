"""The coordinator's machine, without a coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.nodes import Expelled, Job, PeerLost, StartFailed
from paceline.nodes import messages as m
from paceline.nodes.membership import Close, Command, End, Membership, Send, places
from paceline.params import Space
from paceline.wire import Address
from tests.effort import cases

SHAPES = [m.Shape("weight", (10, 7)), m.Shape("bias", (7,))]


class Run:
    """A run whose nodes do what they are told; it keeps everything that was said to them."""

    def __init__(self, **settings: object) -> None:
        self.membership = Membership(Job(**{"workers": 3, "servers": 2} | settings), 0.0)  # type: ignore[arg-type]
        self.said: dict[int, list[m.AnyMessage]] = {}
        self.closed: set[int] = set()
        self.end: End | None = None
        self._links = 0

    def do(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Send(link, message):
                    self.said.setdefault(link, []).append(message)
                case Close(link):
                    self.closed.add(link)
                case End():
                    assert self.end is None, "a run ends once"
                    self.end = command

    def come(self, hello: m.AnyMessage, now: float = 0.0) -> int:
        self._links += 1
        self.do(self.membership.came(self._links, hello, now))
        return self._links

    def say(self, link: int, message: m.AnyMessage, now: float = 0.0) -> None:
        self.do(self.membership.received(link, message, now))

    def server(self, number: int) -> int:
        link = self.come(m.ServerHello(number, 100 + number))
        self.say(link, m.Serving(Address(host="127.0.0.1", port=5000 + number)))
        return link

    def worker(self, number: int | None, shapes: list[m.Shape] = SHAPES, dtype: str = "float32") -> int:
        link = self.come(m.WorkerHello(number, 200))
        if link not in self.closed:
            self.say(link, m.Describe(shapes, dtype))
        return link

    def last(self, link: int, kind: type) -> Any:
        return [message for message in self.said.get(link, []) if isinstance(message, kind)][-1]

    def heard(self, link: int, kind: type) -> int:
        return sum(isinstance(message, kind) for message in self.said.get(link, []))


def running(**settings: object) -> tuple[Run, list[int], list[int]]:
    run = Run(**settings)
    servers = [run.server(number) for number in range(run.membership.job.servers)]
    workers = [run.worker(number) for number in range(run.membership.job.workers)]
    for server in servers:
        run.say(server, m.Ready())
    assert run.membership.phase == "running"
    return run, servers, workers


@given(st.permutations(["s0", "s1", "w0", "w1", "w2", "w-"]))
@settings(max_examples=cases(60), deadline=None)
def test_a_run_begins_in_whatever_order_its_nodes_come(order: list[str]) -> None:
    """`w-` is a worker that takes whatever number is free. It is one too many, and stands in for the last one."""
    run = Run()
    links = {}
    for name in order:
        number = None if name[1] == "-" else int(name[1])
        links[name] = run.server(number) if name[0] == "s" and number is not None else run.worker(number)
    for name in ("s0", "s1"):
        assert run.heard(links[name], m.Serve) == 1
        run.say(links[name], m.Ready())
    begun = [run.last(link, m.Begin) for name, link in links.items() if name[0] == "w" and run.heard(link, m.Begin)]
    assert sorted(begin.worker for begin in begun) == [0, 1, 2]
    assert [begin.initial for begin in sorted(begun, key=lambda begin: begin.worker)] == [True, False, False]
    serve = run.last(links["s0"], m.Serve)
    assert [place.stop for place in serve.places][-1] == 77
    assert serve.members == [m.Member(0, 0), m.Member(1, 0), m.Member(2, 0)]


@pytest.mark.parametrize(
    ("shapes", "dtype", "names"),
    [
        (
            [m.Shape("weight", (10, 7)), m.Shape("bias", (8,))],
            "float32",
            "'bias' has the shape (8,), in the run it is (7,)",
        ),
        ([m.Shape("weight", (10, 7)), m.Shape("bia", (7,))], "float32", "'bia' is not in the run; 'bias' is"),
        ([m.Shape("weight", (10, 7))], "float32", "'bias' is missing"),
        (SHAPES[::-1], "float32", "another order"),
        (SHAPES, "float64", "float64"),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_worker_with_another_model_is_told_and_nobody_else(
    shapes: list[m.Shape], dtype: str, names: str, before: bool
) -> None:
    run = Run()
    servers = [run.server(0), run.server(1)]
    wrong = run.worker(1, shapes, dtype) if before else None
    workers = [run.worker(0), run.worker(2)]
    wrong = run.worker(1, shapes, dtype) if wrong is None else wrong
    failed = run.last(wrong, m.Failed)
    assert failed.kind == "parameters"
    assert names in failed.words
    assert "worker 1" in failed.words
    assert run.closed == {wrong}
    workers.append(run.worker(1))  # its place is free again
    for server in servers:
        run.say(server, m.Ready())
    assert all(run.heard(worker, m.Begin) for worker in workers)


def test_numbers_that_cannot_be_are_refused() -> None:
    run = Run()
    run.worker(1)
    for hello in (m.WorkerHello(3, 1), m.WorkerHello(-1, 1), m.WorkerHello(1, 1), m.ServerHello(2, 1), m.Alive()):
        link = run.come(hello)
        assert run.last(link, m.Failed).kind == "request"
        assert link in run.closed


def test_a_dead_worker_leaves_all_servers_and_the_others_go_on() -> None:
    run, servers, workers = running()
    run.do(run.membership.closed(workers[1], "reset"))
    for server in servers:
        assert run.last(server, m.Expel) == m.Expel(m.Member(1, 0))
    assert run.end is None


def test_a_worker_that_comes_again_is_another_life_of_it() -> None:
    run, servers, workers = running()
    for server in servers:
        run.say(server, m.Initialised())
    run.do(run.membership.closed(workers[0], "reset"))
    again = run.worker(0)
    assert not run.heard(again, m.Begin)
    for server in servers:
        assert run.last(server, m.Admit) == m.Admit(m.Member(0, 1))
        run.say(server, m.Admitted(m.Member(0, 1)))
    begin = run.last(again, m.Begin)
    assert (begin.worker, begin.incarnation, begin.initial) == (0, 1, False)


def test_the_run_cannot_go_on_without_a_server_or_without_the_first_parameters() -> None:
    run, servers, _ = running()
    run.do(run.membership.closed(servers[1], "reset by peer"))
    assert run.end is not None
    assert isinstance(run.end.error, PeerLost)
    assert "server 1 (pid 101) is gone: reset by peer" in str(run.end.error)
    run, _, workers = running()
    run.do(run.membership.closed(workers[0], "reset"))
    assert run.end is not None
    assert "before it gave the first parameters" in str(run.end.error)


def test_a_silent_worker_is_expelled_and_told() -> None:
    run, servers, workers = running(silence=1.0)
    for server in servers:
        run.say(server, m.Initialised())
    for link in (*servers, *workers[:2]):
        run.say(link, m.Alive(), 0.9)
    run.do(run.membership.tick(1.5))
    assert run.last(workers[2], m.Halt).kind == Expelled.kind
    assert run.last(servers[0], m.Expel) == m.Expel(m.Member(2, 0))
    assert run.end is None
    run.say(workers[0], m.Alive(), 2.0)
    run.do(run.membership.tick(2.5))
    assert run.end is not None
    assert "server 0" in str(run.end.error)
    assert "silent for 1 s" in str(run.end.error)


def test_who_did_not_come_is_named() -> None:
    run = Run(start_within=5.0)
    run.server(0)
    run.worker(2)
    run.do(run.membership.tick(5.0))
    assert run.end is None
    run.do(run.membership.tick(5.1))
    assert run.end is not None
    assert isinstance(run.end.error, StartFailed)
    assert "server 1, worker 0, worker 1 did not come" in str(run.end.error)


def test_a_run_ends_well_when_its_workers_are_done() -> None:
    run, _, workers = running()
    for worker in workers:
        assert run.end is None
        run.say(worker, m.Finished())
        assert run.last(worker, m.Halt).kind is None
    assert run.end == End(None)


def test_a_change_of_model_is_checked_sent_on_and_confirmed() -> None:
    run, servers, workers = running()
    run.say(workers[0], m.Change("ssp(s=3)"))
    assert not run.heard(workers[0], m.Changed)
    for server in servers:
        assert run.last(server, m.Change) == m.Change("ssp(s=3)")
        run.say(server, m.Changed())
    assert run.last(workers[0], m.Changed).error is None
    assert run.membership.changes.in_force == ["ssp(s=3)", "ssp(s=3)"]
    operator = run.come(m.OperatorHello(7))
    run.say(operator, m.Change("asp", 1))
    assert run.heard(servers[0], m.Change) == 1
    run.say(servers[1], m.Changed("no"))
    assert run.last(operator, m.Changed).error == "no"


@pytest.mark.parametrize(
    ("sync", "shard", "says"),
    [("spp(s=3)", None, "ssp"), ("asp", 2, "there are 0 to 1"), ("elastic_bsp(R=3)", 0, "all shards or on none")],
)
def test_a_change_that_cannot_be_is_refused(sync: str, shard: int | None, says: str) -> None:
    run, servers, workers = running()
    run.say(workers[0], m.Change(sync, shard))
    assert says in run.last(workers[0], m.Changed).error
    assert not run.heard(servers[0], m.Change)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 40), st.integers(0, 2))
@settings(max_examples=cases(60), deadline=None)
def test_nobody_passes_the_barrier_before_all_live_workers_are_there(turns: list[int], dies_at: int, dies: int) -> None:
    run, servers, workers = running()
    for server in servers:
        run.say(server, m.Initialised())
    at = dict.fromkeys(range(3), 0)  # the iteration each is in
    waits: set[int] = set()
    for turn, worker in enumerate(turns):
        if turn == dies_at and dies in at:
            run.do(run.membership.closed(workers[dies], "reset"))
            del at[dies]
            waits.discard(dies)
        elif worker in at and worker not in waits:
            run.say(workers[worker], m.AtBarrier(at[worker]))
            waits.add(worker)
        if waits == set(at):
            for other in at:
                assert run.heard(workers[other], m.PassBarrier) == at[other] + 1
                at[other] += 1
            waits = set()
        for other in at:
            assert run.heard(workers[other], m.PassBarrier) == at[other]


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.integers(1, 5), st.integers(1, 3))
@settings(max_examples=cases(100), deadline=None)
def test_shards_cover_the_parameters_once(sizes: list[int], servers: int, each: int) -> None:
    space = Space({f"t{n}": (size,) for n, size in enumerate(sizes)})
    for slicing in ("elastic", "by-key"):
        job = Job(workers=1, servers=servers, shards_per_server=each, slicing=slicing)
        shards = places(space, job)
        assert [place.shard for place in shards] == list(range(len(shards)))
        assert [place.start for place in shards] == [0, *(place.stop for place in shards[:-1])]
        assert shards[-1].stop == space.size
        assert all(0 <= place.server < servers for place in shards)


def waiting_for_the_state_server() -> tuple[Run, list[int]]:
    run = Run(sync="esync", workers=1, servers=1)
    return run, [run.server(0), run.worker(0)]


def with_state_server() -> tuple[Run, int, int, int]:
    run, (server, worker) = waiting_for_the_state_server()
    state_server = run.come(m.StateServerHello(300))
    run.say(state_server, m.Serving(Address(host="127.0.0.1", port=6000)))
    run.say(server, m.Ready())
    return run, server, worker, state_server


def test_esync_begins_with_the_state_server_and_workers_are_told_where_it_is() -> None:
    run, (server, _) = waiting_for_the_state_server()
    assert not run.heard(server, m.Serve)
    run.do(run.membership.tick(1000.0))
    assert run.end is not None
    assert isinstance(run.end.error, StartFailed)
    assert "the State Server did not come" in str(run.end.error)
    run, _, worker, _ = with_state_server()
    assert run.last(worker, m.Begin).state_server == Address(host="127.0.0.1", port=6000)


def test_a_second_state_server_and_one_that_nobody_needs_are_refused() -> None:
    run, _, _, _ = with_state_server()
    assert "already" in run.last(run.come(m.StateServerHello(301)), m.Failed).words
    run = Run(sync="ssp(s=3)")
    assert "needs no State Server" in run.last(run.come(m.StateServerHello(301)), m.Failed).words


@pytest.mark.parametrize("silent", [False, True])
def test_a_run_goes_on_without_the_state_server_and_so_does_who_is_joining(silent: bool) -> None:
    run, server, worker, state_server = with_state_server()
    joiner = run.worker(1)
    assert run.heard(state_server, m.Admit) == run.heard(server, m.Admit) == 1
    run.say(server, m.Admitted(m.Member(1, 0)))
    assert not run.heard(joiner, m.Begin)
    if silent:
        now = run.membership.job.silence + 1
        for link in (server, worker, joiner):
            run.say(link, m.Alive(), now)
        run.do(run.membership.tick(now))
        assert state_server in run.closed
    else:
        run.do(run.membership.closed(state_server, "killed"))
    assert run.end is None
    assert run.last(joiner, m.Begin).state_server is None


def test_the_state_server_hears_who_comes_and_goes() -> None:
    run, server, worker, state_server = with_state_server()
    joiner = run.worker(1)
    for link in (server, state_server):
        run.say(link, m.Admitted(m.Member(1, 0)))
    assert run.heard(joiner, m.Begin)
    run.say(worker, m.Finished())
    assert run.last(state_server, m.Expel) == m.Expel(m.Member(0, 0))


@pytest.mark.parametrize(("sync", "to"), [("bsp", "esync"), ("esync(steps=2)", "bsp")])
def test_esync_cannot_come_or_go_while_a_run_goes_on(sync: str, to: str) -> None:
    run, _, workers = running(sync=sync)
    run.say(workers[0], m.Change(to))
    assert "chosen when a run starts" in run.last(workers[0], m.Changed).error


def test_nobody_can_join_an_all_reduce() -> None:
    run, _, _ = running(sync="esync(steps=2, aggregate=all_reduce)")
    assert "all-reduce is fixed" in run.last(run.come(m.WorkerHello(3, 1)), m.Failed).words
