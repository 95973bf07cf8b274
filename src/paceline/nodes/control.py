"""A worker's line to the coordinator, on a thread of its own: heartbeats go on while the worker computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import TypeVar

from paceline.nodes import messages as m
from paceline.nodes.coordinator import BEATS, no_payload
from paceline.nodes.errors import NodeError, PeerLost, WaitedTooLong, error_of
from paceline.nodes.job import Job, Network
from paceline.wire import Address, Channel, Incoming, Loop, WireError

Reply = TypeVar("Reply", bound=m.Message)


class Control:
    """`on_news` is called, on the other thread, when `error` has been set."""

    def __init__(self, job: Job, network: Network, clock: Callable[[], float], on_news: Callable[[], None]) -> None:
        self.error: NodeError | None = None
        self._job = job
        self._network = network
        self._clock = clock
        self._on_news = on_news
        self._loop = Loop(clock=clock)
        self._channel: Channel | None = None
        self._heard = clock()
        self._inbox: deque[m.AnyMessage] = deque()
        self._arrival = Condition()
        self._over = False
        self._thread = Thread(target=self._run, name="paceline-control", daemon=True)

    def start(self, coordinator: Address, hello: m.AnyMessage, first: m.AnyMessage) -> None:
        """Connect, introduce this node, and keep the line open."""
        deadline = self._clock() + self._job.start_within
        channel = self._network.connect(coordinator, m.encode(hello), self._job.digest(), deadline)
        channel.peer = "the coordinator"
        channel.sink = no_payload
        self._channel = channel
        self._heard = self._clock()
        self._loop.add(channel, self._message, self._closed)
        channel.send(m.encode(first))
        self._beat()
        self._thread.start()

    def send(self, message: m.AnyMessage) -> None:
        self._loop.call_soon(lambda: self._send(message))
        self._loop.wake()

    def ask(self, message: m.AnyMessage, reply: type[Reply], within: float | None) -> Reply:
        self.send(message)
        return self.wait_for(reply, within)

    def wait_for(self, kind: type[Reply], within: float | None) -> Reply:
        """The next message of this kind. Raises what has ended the run, or that nothing came.

        Without a limit it may take as long as the other workers do; heartbeats tell whether the coordinator lives.
        """
        deadline = None if within is None else self._clock() + within
        with self._arrival:
            while True:
                for message in self._inbox:
                    if isinstance(message, kind):
                        self._inbox.remove(message)
                        return message
                if self.error is not None:
                    raise self.error
                left = None if deadline is None else deadline - self._clock()
                if left is not None and left <= 0:
                    raise WaitedTooLong(f"the coordinator sent no {kind.__name__} within {within:g} s")
                self._arrival.wait(left)

    def verdict(self, within: float) -> NodeError | None:
        """What the coordinator says has happened, if it says so soon."""
        deadline = self._clock() + within
        with self._arrival:
            while self.error is None and self._clock() < deadline:
                self._arrival.wait(deadline - self._clock())
        return self.error

    def close(self, last: m.AnyMessage | None = None) -> None:
        """Say the last word, and hang up."""
        if self._thread.is_alive():
            self._loop.call_soon(lambda: self._hang_up(last))
            self._loop.wake()
            self._thread.join()
        self._loop.close()

    # On the thread.

    def _run(self) -> None:
        self._loop.run(lambda: self._over)

    def _send(self, message: m.AnyMessage) -> None:
        if self._channel is not None and not self._channel.closed:
            self._channel.send(m.encode(message))

    def _hang_up(self, last: m.AnyMessage | None) -> None:
        if last is not None:
            self._send(last)
        if self._channel is not None:
            self._channel.close()
        self._over = True

    def _beat(self) -> None:
        now = self._clock()
        if now - self._heard > self._job.silence:
            self._fail(PeerLost(f"the coordinator is gone: silent for {self._job.silence:g} s"))
            return
        self._send(m.Alive())
        self._loop.call_at(now + self._job.silence / BEATS, self._beat)

    def _message(self, _: Channel, incoming: Incoming) -> None:
        self._heard = self._clock()
        message = m.decode(incoming.header)
        match message:
            case m.Alive():
                return
            case m.Halt(kind, words) | m.Failed(kind, words):
                self._fail(error_of(kind, words) if kind is not None else NodeError("the run is over"))
            case _:
                with self._arrival:
                    self._inbox.append(message)
                    self._arrival.notify_all()

    def _closed(self, _: Channel, error: WireError) -> None:
        self._channel = None
        self._fail(PeerLost(f"the coordinator is gone: {error.why}"))

    def _fail(self, error: NodeError) -> None:
        with self._arrival:
            if self.error is None:
                self.error = error
            self._arrival.notify_all()
        self._over = True
        self._on_news()
