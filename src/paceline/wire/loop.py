"""The loop of a node: one thread waits for all its channels, listeners and timers, and calls whom it concerns.

Nothing in it blocks but the wait itself, which ends with the next timer or deadline at the latest. Everything is called
in the thread that runs the loop; only `wake` may be called from elsewhere. What blocks can be run `aside`.
"""

from __future__ import annotations

import os
import select
import time
from collections import Counter, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from paceline.wire.bell import Bell
from paceline.wire.channel import LINGER, Channel, OnClosed, OnMessage
from paceline.wire.errors import Timeout
from paceline.wire.movers import Movers

if TYPE_CHECKING:
    from paceline.wire.listener import Listener, OnConnected

Handler = Callable[[int], None]

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

AT_ONCE = 64  # descriptors handled in one turn
LONGEST = 3600.0  # seconds of one wait
MOST_CANCELLED = 64  # timers that may wait for their time although nobody wants them any more
BRIEF = 1e-3  # seconds to stay awake: more than it takes a peer to be woken, also on a machine that others share


class Timer:
    """Something to be called at a time, unless it is cancelled."""

    __slots__ = ("at", "call", "number")

    def __init__(self, at: float, number: int, call: Callable[[], None]) -> None:
        self.at = at
        self.number = number
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self.number) < (other.at, other.number)


class Loop:
    """`counters` says how many connections were refused or lost, by cause.

    A loop that may stay `awake` does not sleep at first when it waits: where waits are brief, as the last one was,
    looking again and again finds out sooner than to be woken. That is for nodes that nobody else wants the cores of.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, awake: bool = False) -> None:
        self.clock = clock
        self._awake = awake
        self.counters: Counter[str] = Counter()
        self.channels: set[Channel] = set()
        self.listeners: list[Listener] = []
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[Timer] = []
        self._made = 0  # timers so far
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._brief = False  # was the last wait so short that it pays to stay awake?
        self._movers = Movers()
        self._bell = Bell()
        self.watch(self._bell.fileno(), READ, self._woken)

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What nodes call.

    def add(self, channel: Channel, on_message: OnMessage, on_closed: OnClosed) -> None:
        """Take a channel in. A WireError that `on_message` raises ends that channel, and only that."""
        channel.attach(self, on_message, on_closed)
        if not channel.closed:
            self.channels.add(channel)

    def remove(self, channel: Channel) -> None:
        """Let go of a channel that lives on, and is not open yet."""
        channel.detach()
        self.channels.discard(channel)

    def listen(self, listener: Listener, on_connected: OnConnected) -> None:
        """Accept connections. Those whose handshake is done are handed to `on_connected`, which adds them or raises
        a WireError, whose reason the peer is told."""
        self.listeners.append(listener)
        listener.start(self, on_connected)

    def call_at(self, at: float, call: Callable[[], None]) -> Timer:
        self._made += 1
        timer = Timer(at, self._made, call)
        heappush(self._timers, timer)
        return timer

    def call_soon(self, call: Callable[[], None]) -> None:
        """At the end of this turn, or with the next."""
        self._soon.append(call)

    def aside(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Do some work on another thread and, when it is done, call `then` in the loop."""

        def both() -> None:
            work()
            self._soon.append(then)
            self.wake()

        self._movers.run(both)

    def wake(self) -> None:
        """End the wait of the loop, from any thread."""
        self._bell.ring()

    def run_once(self, timeout: float | None = None, *, asleep: bool = False) -> None:
        """Wait for something to happen, no longer than `timeout`, and handle all that did.

        `asleep` if this thread is not the only one that has work to do.
        """
        patience = self._patience(timeout)
        look = self._awake and not asleep
        for fd, events in self._look_and_wait(patience) if look else self._epoll.poll(patience, AT_ONCE):
            handler = self._handlers.get(fd)  # an earlier one may have ended it
            if handler is not None:
                handler(events)
        if self._soon:
            self._end_turn()
        if self._timers:
            self._ring()

    def run(self, until: Callable[[], bool], deadline: float | None = None, waiting_for: str = "an event") -> None:
        """Go on until the condition holds. Raises Timeout once the loop's clock has reached the deadline."""
        self._end_turn()
        while not until():
            left = None if deadline is None else deadline - self.clock()
            if left is not None and left <= 0:
                raise Timeout("loop", f"{waiting_for} did not come in time")
            self.run_once(left)

    def _end_turn(self) -> None:
        for _ in range(len(self._soon)):
            self._soon.popleft()()

    def close(self) -> None:
        """End all channels and listeners. What they still have to say may take LINGER seconds."""
        for listener in self.listeners:
            listener.close()
        self.listeners.clear()
        for channel in list(self.channels):
            channel.close("the node has ended")
        deadline = time.monotonic() + LINGER  # by the real clock: another may stand still
        while self.channels and time.monotonic() < deadline:
            self.run_once(deadline - time.monotonic())
        for channel in list(self.channels):
            channel.abort()
        self._movers.close()
        while self._soon:
            self._soon.popleft()()
        self._epoll.close()
        self._bell.close()

    # What channels and listeners call.

    def watch(self, fd: int, events: int, handler: Handler) -> None:
        """Call `handler` when the descriptor is ready for READ or WRITE; with other bits if it is broken."""
        self._epoll.register(fd, events)
        self._handlers[fd] = handler

    def rewatch(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        self._epoll.unregister(fd)
        del self._handlers[fd]

    def forget(self, channel: Channel) -> None:
        self.channels.discard(channel)

    def _patience(self, timeout: float | None) -> float:
        """How long to wait; never negative, which would be for ever."""
        if self._soon:
            return 0.0
        if timeout is None or timeout > LONGEST:
            timeout = LONGEST
        timers = self._timers
        while timers and timers[0].call is None:
            heappop(timers)
        if timers:
            timeout = min(timeout, timers[0].at - self.clock())
        return timeout if timeout > 0 else 0.0

    def _look_and_wait(self, patience: float) -> list[tuple[int, int]]:
        """What is ready, once something is. Looks for it first, if it may come at once."""
        ready = self._epoll.poll(0, AT_ONCE)
        if ready or not patience:
            self._brief = self._brief or bool(patience)
            return ready
        begun = time.monotonic()
        if self._brief:
            until = begun + min(patience, BRIEF)
            while time.monotonic() < until:
                os.sched_yield()
                ready = self._epoll.poll(0, AT_ONCE)
                if ready:
                    return ready
        ready = self._epoll.poll(patience, AT_ONCE)
        self._brief = time.monotonic() - begun < BRIEF
        return ready

    def _ring(self) -> None:
        timers, now = self._timers, self.clock()
        if timers[0].at > now and len(timers) <= MOST_CANCELLED:
            return
        due = []
        while timers and timers[0].at <= now:
            due.append(heappop(timers))
        for timer in due:
            if timer.call is not None:
                timer.call()
        if len(timers) > MOST_CANCELLED and sum(timer.call is None for timer in timers) > len(timers) // 2:
            self._timers = [timer for timer in timers if timer.call is not None]
            heapify(self._timers)

    def _woken(self, events: int) -> None:
        self._bell.hush()
