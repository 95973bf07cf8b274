"""A server, spoken to in raw messages by a worker that does not keep to the rules."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from time import monotonic

import pytest
import torch

from paceline.nodes import Coordinator, Job, NodeError, Server
from paceline.nodes import messages as m
from paceline.nodes.control import Control
from paceline.params import Optimizer
from paceline.wire import Channel, Incoming, Loop, MemoryNetwork, WireError

SIZE = 6
SOON = 20.0


class RawWorker:
    """Worker 0 of a run with one server, with its own hands on the wire."""

    def __init__(self, sync: str = "asp", workers: int = 1, codec: str = "none") -> None:
        self.job = Job(workers=workers, sync=sync, optimizer=Optimizer("sgd", {"lr": 1.0}), codec=codec)
        self.network = MemoryNetwork()
        self.coordinator = Coordinator(self.job, self.network)
        address = self.coordinator.start()
        self.server = Server(self.job, 0, self.network)
        self.nodes: list[tuple[Coordinator | Server, Thread]] = [
            (self.coordinator, Thread(target=self._quietly, args=(self.coordinator.run,), daemon=True)),
            (self.server, Thread(target=self._quietly, args=(lambda: self.server.run(address),), daemon=True)),
        ]
        for _, thread in self.nodes:
            thread.start()
        self.loop = Loop()
        self.values = memoryview(bytearray(SIZE * 4))
        self.heard: list[m.AnyMessage] = []
        self.closed: WireError | None = None
        self.controls = [Control(self.job, self.network, monotonic, lambda: None) for _ in range(workers)]
        for number, control in enumerate(self.controls):
            control.start(
                address, m.WorkerHello(number, os.getpid()), m.Describe([m.Shape("values", (SIZE,))], "float32")
            )
        self.begin = self.controls[0].wait_for(m.Begin, SOON)

    @staticmethod
    def _quietly(run: object) -> None:
        with suppress(NodeError):
            run()  # type: ignore[operator]

    def connect(self, hello: m.AnyMessage) -> Channel:
        channel = self.network.connect(self.begin.servers[0], m.encode(hello), self.job.digest())
        channel.sink = lambda header, size: self.values[:size]
        self.loop.add(channel, self._message, self._closed)
        return channel

    def expect(self, kind: type, count: int = 1) -> list[m.AnyMessage]:
        """So many messages of a kind."""

        def heard() -> list[m.AnyMessage]:
            return [message for message in self.heard if isinstance(message, kind)]

        self.loop.run(lambda: len(heard()) >= count, monotonic() + SOON)
        return heard()

    def expect_end(self) -> str:
        self.loop.run(lambda: self.closed is not None, monotonic() + SOON)
        return str(self.closed)

    def close(self) -> None:
        self.loop.close()
        for control in self.controls:
            control.send(m.Finished())
            control.verdict(SOON)
            control.close()
        for node, thread in reversed(self.nodes):  # the coordinator waits until the others have hung up
            thread.join(SOON)
            assert not thread.is_alive()
            node.close()

    def _message(self, _: Channel, incoming: Incoming) -> None:
        self.heard.append(m.decode(incoming.header))

    def _closed(self, _: Channel, error: WireError) -> None:
        self.closed = error


@pytest.fixture
def raw() -> Iterator[RawWorker]:
    worker = RawWorker()
    yield worker
    worker.close()


def ones() -> memoryview:
    return memoryview(torch.ones(SIZE).numpy().tobytes())


def begun(raw: RawWorker) -> Channel:
    channel = raw.connect(m.WorkerHello(0, os.getpid(), 0))
    channel.send(m.encode(m.Initial(0)), memoryview(bytes(SIZE * 4)))
    channel.send(m.encode(m.Pull(0, -1)))
    raw.expect(m.Parameters)
    return channel


def test_a_push_that_comes_twice_is_applied_once_and_answered_twice(raw: RawWorker) -> None:
    channel = begun(raw)
    for _ in range(2):
        channel.send(m.encode(m.Push(0, 0, 0)), ones())
    channel.send(m.encode(m.Pull(0, 0)))
    parameters = raw.expect(m.Parameters, 2)[-1]
    answers = raw.expect(m.Answer, 2)
    assert isinstance(parameters, m.Parameters)
    assert parameters.version == 1
    assert torch.frombuffer(raw.values, dtype=torch.float32).tolist() == [-1.0] * SIZE
    assert [answer.outcome for answer in answers if isinstance(answer, m.Answer)] == ["applied", "applied"]


def test_another_life_of_a_worker_is_refused(raw: RawWorker) -> None:
    begun(raw)
    raw.heard.clear()
    raw.connect(m.WorkerHello(0, os.getpid(), 5))
    failed = raw.expect(m.Failed)[0]
    assert isinstance(failed, m.Failed)
    assert "worker 0, life 5, is not in the run" in failed.words


@pytest.mark.parametrize(
    ("header", "size", "says"),
    [
        (m.encode(m.Push(0, 0, 0)), SIZE * 4 - 4, "20 bytes"),
        (m.encode(m.Push(0, 0, 0)), SIZE * 4 + 4, "28 bytes"),
        (m.encode(m.Push(3, 0, 0)), SIZE * 4, "shard 3 is not on server 0"),
        (m.encode(m.Pull(0, 0)), SIZE * 4, "Pull"),
        (m.encode(m.Push(0, 0, 0)), None, "0 have come"),
        (m.encode(m.Pull(7, 0)), None, "shard 7 is not on server 0"),
        (m.encode(m.Halt()), None, "Halt"),
        (b"", None, "cannot be read"),
        (b"\x93\xa4Push", None, "cannot be read"),
        (b"\xff" * 100, None, "cannot be read"),
    ],
)
def test_what_cannot_be_ends_that_connection_with_a_reason(
    raw: RawWorker, header: bytes, size: int | None, says: str
) -> None:
    channel = begun(raw)
    channel.send(header, None if size is None else memoryview(bytes(size)))
    assert says in raw.expect_end() + " ".join(map(str, raw.heard))


@pytest.mark.parametrize("iteration", [-(2**62), -1, 2**62])
def test_iterations_that_cannot_be_disturb_nobody(raw: RawWorker, iteration: int) -> None:
    channel = begun(raw)
    channel.send(m.encode(m.Push(0, iteration, 0)), ones())
    channel.send(m.encode(m.Push(0, 0, 0)), ones())
    raw.expect(m.Answer, 2)
    channel.send(m.encode(m.Pull(0, 0)))
    raw.expect(m.Parameters, 2)


def test_a_copy_is_given_once_for_each_connection(raw: RawWorker) -> None:
    early = raw.connect(m.OperatorHello(1))
    early.send(m.encode(m.Save()))
    assert "no parameters yet" in raw.expect_end() + " ".join(map(str, raw.heard))
    begun(raw)
    raw.closed = None
    operator = raw.connect(m.OperatorHello(1))
    operator.send(m.encode(m.Save()))
    (saved,) = raw.expect(m.Saved)
    assert saved == m.Saved(0, 0, 0, [""], {})
    raw.expect(m.Row)
    operator.send(m.encode(m.Save()))
    assert "may ask once" in raw.expect_end() + " ".join(map(str, raw.heard))


@pytest.mark.parametrize("header", [b"", b"\xff" * 100, m.encode(m.Halt()), m.encode(m.Push(0, 0, 0))])
def test_an_operator_that_says_anything_else_disturbs_nobody(raw: RawWorker, header: bytes) -> None:
    channel = begun(raw)
    operator = raw.connect(m.OperatorHello(1))
    operator.send(header)
    raw.expect_end()
    channel.send(m.encode(m.Push(0, 0, 0)), ones())
    raw.expect(m.Answer)
