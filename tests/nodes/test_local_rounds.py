"""esync on real nodes: workers, servers and the State Server, which may be lost."""

from __future__ import annotations

import os
import signal
from math import nan
from threading import Thread
from typing import Any

import pytest

from paceline.launch.local import LocalCluster
from paceline.nodes import Coordinator, Job, LocalWorker, StateServer, WrongRequest
from paceline.nodes import messages as m
from paceline.nodes.coordinator import no_payload
from paceline.nodes.local_rounds import LocalRounds
from paceline.params import Optimizer
from paceline.sync.models.esync import ESync
from paceline.wire import Address, Loop, MemoryNetwork
from tests.nodes import programs
from tests.nodes.runs import WIRES, run

SOON = 60.0
ROUNDS = 20  # so that a fast worker which others keep from its core has rounds left to show that it is


@pytest.mark.parametrize(
    ("wire", "sync"),
    [
        *((wire, "esync") for wire in WIRES),
        ("memory", "esync(query=nonblocking)"),
        ("memory", "esync(max_steps=3)"),
    ],
)
def test_the_parameters_are_the_mean_of_what_all_have_done(wire: str, sync: str) -> None:
    job = Job(workers=3, servers=2, sync=sync, optimizer=Optimizer("sgd", {"lr": 1.0}))
    results = run(wire, job, programs.local_rounds, {"rounds": ROUNDS, "says": False})
    expected = sum(sum(result["steps"]) for result in results) / 3
    for result in results:
        assert result["parameters"] == pytest.approx([expected] * 10)
        assert len(result["steps"]) == ROUNDS
        assert min(result["steps"]) >= 1
        assert max(result["steps"]) <= 3 or "max_steps" not in sync
    assert sum(results[0]["steps"]) > sum(results[2]["steps"])


def test_with_a_fixed_number_of_steps_nobody_is_asked() -> None:
    job = Job(workers=2, sync="esync(steps=4)")
    assert not job.asks
    for result in run("memory", job, programs.local_rounds, {"rounds": 5, "says": False}):
        assert result["steps"] == [4] * 5


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_without_the_state_server_every_round_has_one_step(fate: signal.Signals) -> None:
    """Whether it has died or only stands still."""
    job = Job(workers=2, servers=1, sync="esync", silence=4.0)
    with LocalCluster(job, "tests.nodes.programs:local_rounds", {"rounds": 5, "lost": True}) as cluster:
        for number in range(job.workers):
            assert cluster.said(f"worker {number}", SOON) == "under way"
        os.kill(cluster.pid("state server"), fate)
        if fate == signal.SIGSTOP:  # nobody waits for its end
            for name in ("worker 0", "worker 1", "server 0", "coordinator"):
                cluster._processes[name].process.join(SOON)
            cluster.kill("state server")
        ended = cluster.wait(SOON)
    results = [ended[f"worker {number}"].value for number in range(2)]
    for name, one in ended.items():
        assert one.error is None or name == "state server", (name, one.error, one.log)
    for result in results:
        assert result["steps"][-4:] == [1] * 4  # the others may have noticed it a round later
    assert sum(results[0]["steps"]) > len(results[0]["steps"])  # there were more before


def test_a_worker_may_die_and_another_life_of_it_join() -> None:
    job = Job(workers=3, servers=2, sync="esync")
    with LocalCluster(job, "tests.nodes.programs:local_rounds", {"rounds": 150}) as cluster:
        for number in range(job.workers):
            assert cluster.said(f"worker {number}", SOON) == "under way"
        cluster.kill("worker 2")
        cluster.start_worker(2, "worker 2 again")
        ended = cluster.wait(SOON)
    for name, one in ended.items():
        assert one.error is None or name == "worker 2", (name, one.error, one.log)
    assert len(ended["worker 0"].value["steps"]) == 150
    assert 3 <= len(ended["worker 2 again"].value["steps"]) < 150


class Alone:
    """A State Server in this thread's process, with a coordinator and nobody else."""

    def __init__(self, workers: int) -> None:
        self.job = Job(workers=workers, sync="esync")
        self.network = MemoryNetwork()
        self.coordinator = Coordinator(self.job, self.network)
        address = self.coordinator.start()
        self.state_server = StateServer(self.job, self.network)
        self.errors: list[BaseException] = []
        self.nodes: list[tuple[Coordinator | StateServer, Thread]] = [
            (self.coordinator, Thread(target=self._run, args=(self.coordinator.run,), daemon=True)),
            (self.state_server, Thread(target=self._run, args=(lambda: self.state_server.run(address),), daemon=True)),
        ]
        for _, thread in self.nodes:
            thread.start()

    def _run(self, call: Any) -> None:
        try:
            call()
        except BaseException as error:
            self.errors.append(error)

    def close(self) -> None:
        self.coordinator.stop(WrongRequest("it is over"))
        for node, thread in reversed(self.nodes):  # the coordinator waits until the others have hung up
            thread.join(SOON)
            assert not thread.is_alive()
            node.close()


class Asker:
    """A worker's connection to the State Server, by hand."""

    def __init__(self, alone: Alone, worker: int, incarnation: int = 0) -> None:
        self.loop = Loop()
        self.heard: list[m.AnyMessage] = []
        self.closed: list[str] = []
        hello = m.encode(m.WorkerHello(worker, 1, incarnation))
        self.channel = alone.network.connect(
            alone.state_server.address(SOON), hello, alone.job.digest(), self.loop.clock() + SOON
        )
        self.channel.sink = no_payload
        self.loop.add(
            self.channel,
            lambda _, incoming: self.heard.append(m.decode(incoming.header)),
            lambda _, error: self.closed.append(error.why),
        )

    def say(self, message: m.AnyMessage) -> None:
        self.channel.send(m.encode(message))

    def until(self, condition: Any) -> None:
        self.loop.run(condition, self.loop.clock() + SOON)


@pytest.mark.parametrize(
    "wrong", [m.Query(0, 1, nan), m.Query(0, 1, -1.0), m.Query(0, -1, 1.0), m.Pull(0, 0), m.Serving(Address())]
)
def test_who_sends_what_cannot_be_is_told_and_nobody_else_is_disturbed(wrong: m.AnyMessage) -> None:
    alone = Alone(2)
    good, bad = Asker(alone, 0), Asker(alone, 1)
    bad.say(wrong)
    bad.until(lambda: bad.closed)
    failed = bad.heard[0]
    assert isinstance(failed, m.Failed)
    assert "worker 1" in failed.words
    good.say(m.RoundBegan(0))
    good.say(m.Query(0, 0, 1.0))
    good.until(lambda: good.heard)
    assert good.heard == [m.State(0, 0, False, most=0)]
    for asker in (good, bad):
        asker.loop.close()
    alone.close()


@pytest.mark.parametrize(("worker", "incarnation"), [(2, 0), (0, 1)])
def test_a_stranger_is_refused(worker: int, incarnation: int) -> None:
    alone = Alone(2)
    stranger = Asker(alone, worker, incarnation)
    stranger.until(lambda: stranger.closed)
    failed = stranger.heard[0]
    assert isinstance(failed, m.Failed)
    assert "is not in the run" in failed.words
    stranger.loop.close()
    alone.close()


class Wired:
    """What `LocalRounds` needs of a channel."""

    closed = False

    def __init__(self) -> None:
        self.sent: list[m.AnyMessage] = []

    def send(self, header: bytes) -> None:
        self.sent.append(m.decode(header))

    def close(self, why: str) -> None:
        self.closed = True


def test_an_answer_that_comes_while_it_computes_ends_the_round_with_what_was_done() -> None:
    now, contributed, channel = [0.0], [], Wired()
    rounds = LocalRounds(
        ESync(query="nonblocking"), lambda: now[0], lambda: contributed.append((rounds.steps, rounds.most))
    )
    rounds.connected(channel)  # type: ignore[arg-type]
    rounds.begin(7)
    assert rounds.settled
    now[0] = 1.0
    rounds.stepped()
    now[0] = 1.01
    rounds.answered(m.State(7, 0, False, most=3))
    assert contributed == []
    rounds.answered(m.State(7, 1, True, most=5))  # while the second is being computed
    assert (contributed, rounds.over) == ([(1, 5)], True)
    rounds.answered(m.State(7, 1, True, most=5))
    assert contributed == [(1, 5)]
    assert [type(message).__name__ for message in channel.sent] == ["RoundBegan", "Query", "Query"]


def test_an_answer_is_waited_for_only_if_it_comes_soon() -> None:
    now, channel = [0.0], Wired()
    rounds = LocalRounds(ESync(query="nonblocking"), lambda: now[0], lambda: None)
    rounds.connected(channel)  # type: ignore[arg-type]
    rounds.begin(0)
    now[0] = 0.001
    rounds.answered(m.State(0, 0, False, most=0))  # after a millisecond
    now[0] = 1.0
    rounds.stepped()
    assert rounds.awaits
    assert 0 < rounds.soon < 0.1
    now[0] = 1.5
    rounds.answered(m.State(0, 1, False, most=1))  # after half an iteration
    now[0] = 2.0
    rounds.stepped()
    assert rounds.awaits
    assert rounds.soon == 0


def test_a_local_worker_needs_esync() -> None:
    with pytest.raises(WrongRequest, match="ssp"):
        LocalWorker(Job(workers=1, sync="ssp(s=3)"), MemoryNetwork(), {"values": (1,)})
    with pytest.raises(WrongRequest, match="esync"):
        StateServer(Job(workers=1, sync="bsp"), MemoryNetwork())
