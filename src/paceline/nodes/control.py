"""A worker's line to the coordinator, on a thread of its own: heartbeats go on while the worker computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Thread
from typing import TypeVar

from paceline.nodes import messages as m
from paceline.nodes.coordinator_line import CoordinatorLine
from paceline.nodes.errors import NodeError, WaitedTooLong
from paceline.nodes.job import Job, Network
from paceline.wire import Address, Loop

Reply = TypeVar("Reply", bound=m.Message)


class Control:
    """`on_news` is called, on the other thread, when `error` has been set."""

    def __init__(self, job: Job, network: Network, clock: Callable[[], float], on_news: Callable[[], None]) -> None:
        self.error: NodeError | None = None
        self._network = network
        self._clock = clock
        self._on_news = on_news
        self._loop = Loop(clock=clock)
        self._line = CoordinatorLine(job, self._loop, self._message, self._ended)
        self._inbox: deque[m.AnyMessage] = deque()
        self._arrival = Condition()
        self._thread = Thread(target=self._run, name="paceline-control", daemon=True)

    def start(self, coordinator: Address, hello: m.AnyMessage, first: m.AnyMessage) -> None:
        """Connect, introduce this node, and keep the line open."""
        self._line.connect(self._network, coordinator, hello, first)
        self._thread.start()

    def send(self, message: m.AnyMessage) -> None:
        self._loop.call_soon(lambda: self._line.send(message))
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

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon(self._line.hang_up)
            self._loop.wake()
            self._thread.join()
        self._loop.close()

    # On the thread.

    def _run(self) -> None:
        self._loop.run(lambda: self._line.over)

    def _message(self, message: m.AnyMessage) -> None:
        with self._arrival:
            self._inbox.append(message)
            self._arrival.notify_all()

    def _ended(self, error: NodeError | None) -> None:
        with self._arrival:
            self.error = error or NodeError("the run is over")
            self._arrival.notify_all()
        self._on_news()
