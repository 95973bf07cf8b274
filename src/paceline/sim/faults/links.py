"""Connections that can break, stand still and repeat themselves, but never change the order of what they carry."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Protocol


class Agenda(Protocol):
    """What is to happen, and what time it is."""

    now: float

    def at(self, time: float, action: Callable[[], None]) -> None: ...


class Pipe:
    """One way of a connection: messages arrive in the order sent, not before `held_until`."""

    def __init__(self, agenda: Agenda, deliver: Callable[[Any], None], held_until: Callable[[], float]) -> None:
        self._agenda = agenda
        self._deliver = deliver
        self._held_until = held_until
        self._queue: deque[tuple[float, Any]] = deque()
        self._last = -inf
        self.copies = 0  # how many of the next messages arrive twice
        self.copied = 0

    def send(self, message: Any, latency: float) -> None:
        self._last = max(self._agenda.now + latency, self._last)
        self._put(message)
        if self.copies:
            self.copies -= 1
            self.copied += 1
            self._put(message)

    def clear(self) -> None:
        """What is under way is gone."""
        self._queue.clear()
        self._last = -inf

    def _put(self, message: Any) -> None:
        self._queue.append((self._last, message))
        self._agenda.at(self._last, self._pump)

    def _pump(self) -> None:
        """One message may arrive, for each that was sent."""
        until = self._held_until()
        if until > self._agenda.now:
            self._agenda.at(until, self._pump)
        elif self._queue and self._queue[0][0] <= self._agenda.now:
            self._deliver(self._queue.popleft()[1])


class Link:
    """A worker's connection to one server, which is made again when it breaks.

    What has no answer yet is kept, in order, and sent again over the next connection, after `greeting`.
    """

    def __init__(
        self,
        agenda: Agenda,
        greeting: list[Any],
        to_server: Callable[[Any], None],
        to_worker: Callable[[Any], None],
        server_until: Callable[[], float],
        worker_until: Callable[[], float],
    ) -> None:
        self._agenda = agenda
        self._greeting = greeting
        self.there = Pipe(agenda, to_server, lambda: max(self.blocked, server_until()))
        self.back = Pipe(agenda, to_worker, lambda: max(self.blocked, worker_until()))
        self.up = True
        self.over = False  # its worker is no more
        self.blocked = -inf  # nothing arrives until then
        self.late = 0.0, -inf  # by how much, and until when
        self.resent = 0
        self.latency = 0.0
        self._unanswered: list[Any] = []

    def greet(self) -> None:
        for message in self._greeting:
            self.there.send(message, self.delay())

    def post(self, message: Any) -> None:
        """Send a message, now or over the next connection, until it has its answer."""
        self._unanswered.append(message)
        if self.up:
            self.there.send(message, self.delay())

    def reply(self, message: Any, extra: float = 0.0) -> None:
        """From the server; nobody hears it while there is no connection."""
        if self.up and not self.over:
            self.back.send(message, self.delay() + extra)

    def answered(self, is_it: Callable[[Any], bool]) -> None:
        self._unanswered = [message for message in self._unanswered if not is_it(message)]

    def delay(self) -> float:
        by, until = self.late
        return self.latency + (by if self._agenda.now < until else 0.0)

    def break_for(self, seconds: float) -> None:
        self.up = False
        self.there.clear()
        self.back.clear()
        self._agenda.at(self._agenda.now + seconds, self._reconnect)

    def end(self, *, lost: bool) -> None:
        """The worker is gone; what it has sent may still arrive."""
        self.up, self.over = False, True
        self.back.clear()
        if lost:
            self.there.clear()

    def _reconnect(self) -> None:
        if self.over or self.up:
            return
        self.up = True
        self.greet()
        for message in self._unanswered:
            self.resent += 1
            self.there.send(message, self.delay())
