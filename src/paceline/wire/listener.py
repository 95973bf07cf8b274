"""Who waits for connections, and shows them in once their handshake is done.

A stranger can hold one of a few places for unfinished handshakes, for a few seconds, and a small buffer. When all
places are taken the one who has taken longest loses his, so that a crowd of silent strangers does not keep out a peer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from paceline.wire.address import Address
from paceline.wire.channel import Channel
from paceline.wire.errors import HandshakeRefused, WireError
from paceline.wire.greeting import HANDSHAKE_SECONDS, Greeting, Identity
from paceline.wire.loop import READ, Loop

OnConnected = Callable[[Channel, bytes], None]

MOST_GREETINGS = 64
ACCEPTED_AT_ONCE = 16
PAUSE = 0.1  # seconds without accepting when there are no descriptors left


class Listener(ABC):
    """`address` is what others need to connect. The loop's counters say who was refused, and why."""

    def __init__(self, address: Address, identity: Identity, seconds: float = HANDSHAKE_SECONDS) -> None:
        self.address = address
        self._identity = identity
        self._seconds = seconds
        self._greetings: dict[Greeting, None] = {}  # in the order in which they came
        self._loop: Loop | None = None
        self._watched: list[int] = []
        self._on_connected: OnConnected | None = None

    def start(self, loop: Loop, on_connected: OnConnected) -> None:
        self._loop, self._on_connected = loop, on_connected
        self._watched = self._doors()
        for door in self._watched:
            loop.watch(door, READ, partial(self._knock, door))

    def close(self) -> None:
        """Accept no more. Channels that are open stay so."""
        if self._loop is not None:
            self._unwatch(self._loop)
            self._loop = None
        for greeting in list(self._greetings):
            greeting.channel.abort()
        self._greetings.clear()
        self._shut()

    @abstractmethod
    def _doors(self) -> list[int]:
        """The descriptors to watch; readable if somebody is at the door. None after `_shut`."""

    @abstractmethod
    def _accept(self, door: int) -> Channel:
        """Who is at the door. Raises BlockingIOError if nobody is, WireError if he is not let in."""

    @abstractmethod
    def _shut(self) -> None:
        """Close all doors."""

    def _unwatch(self, loop: Loop) -> None:
        for door in self._watched:
            loop.unwatch(door)
        self._watched = []

    def _knock(self, door: int, events: int) -> None:
        loop = self._loop
        for _ in range(ACCEPTED_AT_ONCE):
            if loop is None or self._loop is None:
                return
            try:
                channel = self._accept(door)
            except (BlockingIOError, ConnectionError):
                return
            except WireError as error:
                loop.counters[error.cause] += 1
                continue
            except OSError:
                self._exhausted(loop)
                return
            self._show_in(loop, channel)

    def _show_in(self, loop: Loop, channel: Channel) -> None:
        if len(self._greetings) >= MOST_GREETINGS:
            oldest = next(iter(self._greetings))
            why = f"{MOST_GREETINGS} others came before its handshake was done"
            oldest.give_up(HandshakeRefused(oldest.channel.peer, "crowd", why))
            self._greetings.pop(oldest, None)
        greeting = Greeting(
            loop, channel, self._identity.handshake("accepts"), loop.clock() + self._seconds, self._greeted
        )
        self._greetings[greeting] = None
        greeting.start()

    def _greeted(self, greeting: Greeting) -> None:
        self._greetings.pop(greeting, None)
        if greeting.error is not None or self._on_connected is None or self._loop is None:
            return
        try:
            self._on_connected(greeting.channel, greeting.channel.hello)
        except WireError as error:
            self._loop.counters[error.cause] += 1
            greeting.channel.fail(error)

    def _exhausted(self, loop: Loop) -> None:
        """No descriptor is left for another connection. Try again a little later, instead of at once for ever."""
        loop.counters["no descriptors"] += 1
        self._unwatch(loop)
        loop.call_at(loop.clock() + PAUSE, self._again)

    def _again(self) -> None:
        if self._loop is not None and self._on_connected is not None:
            self.start(self._loop, self._on_connected)
