"""The wire within one process, for tests: nodes are threads, and messages go from queue to queue.

It keeps to the same rules as the others: payloads are copied to where the sink says, `done()` comes afterwards and in
the sender's thread, and what waits for a slow reader is limited.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from paceline.wire.address import Address
from paceline.wire.bell import Bell
from paceline.wire.channel import Channel, Incoming, Limits, Wire, left
from paceline.wire.errors import ChannelClosed, SlowReader, Unreachable, WireError
from paceline.wire.frames import BARE, GOODBYE, HANDSHAKE, INLINE, SMALL, as_bytes
from paceline.wire.greeting import HANDSHAKE_SECONDS, Identity, introduce
from paceline.wire.listener import Listener
from paceline.wire.loop import READ
from paceline.wire.outbox import ENTRY, Done

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

END = -1  # the other side is gone


class Item(NamedTuple):
    kind: int
    header: bytes = b""
    payload: memoryview | None = None
    done: Done | None = None
    held: int = 0


class MemoryChannel(Channel):
    """One of two ends. Only `_inbox`, `_receipts` and `_bell` are touched by the other's thread."""

    wire: Wire = "memory"

    def __init__(self, peer: str, limits: Limits) -> None:
        super().__init__(peer, limits)
        self._bell = Bell()
        self._inbox: deque[Item] = deque()
        self._receipts: deque[Item] = deque()  # what the other has taken
        self._sent: deque[Item] = deque()  # what the other has not taken yet
        self._queued = 0
        self._held = 0
        self._watched = False
        self._other: MemoryChannel = self

    @classmethod
    def pair(cls, here: str, there: str, limits: Limits) -> tuple[MemoryChannel, MemoryChannel]:
        one, other = cls(there, limits), cls(here, limits)
        one._other, other._other = other, one
        return one, other

    @property
    def queued_bytes(self) -> int:
        return self._queued

    def send(self, header: bytes, payload: Buffer | None = None, done: Done | None = None) -> None:
        data = None if payload is None else as_bytes(payload)
        size = 0 if data is None else data.nbytes
        self._check(header, size)
        held = ENTRY + len(header) + (size if size <= SMALL else 0)
        item = Item(BARE if data is None else INLINE, bytes(header), data, done, held)
        self._sent.append(item)
        self._queued += len(header) + size
        self._held += held
        self._put(item)
        if self._held > self.limits.queued:
            self.fail(SlowReader(self.peer, f"{self._held} bytes wait for it; at most {self.limits.queued} may"))

    def _say(self, kind: int, header: bytes) -> None:
        self._put(Item(kind, header))

    def _put(self, item: Item) -> None:
        self._other._inbox.append(item)
        self._other._bell.ring()

    def _handle(self, events: int) -> None:
        self._bell.hush()
        self._take()

    def _go_on(self) -> None:
        self._changed()
        self._take()

    def _take(self) -> None:
        while self._receipts and self._sent:
            self._receipts.popleft()
            self._taken()
        try:
            while self._inbox and self._taking:
                self._receive(self._inbox[0])
        except WireError as error:
            self.fail(error)
        except BaseException:  # a mistake of the node's own; if it goes on, so does the channel
            if self._loop is not None:
                self._loop.call_soon(self._go_on)
            raise
        while self._inbox and self._state == "closing":
            if self._inbox.popleft().kind in (GOODBYE, END):
                self._end()

    def _receive(self, item: Item) -> None:
        gone = item.payload is not None and self._other._state == "closed"  # its memory may be used again
        if item.kind == END or gone:
            raise ChannelClosed(self.peer, "it closed the connection without a word")
        if item.kind == GOODBYE:
            raise left(self.peer, item.header)
        incoming = Incoming(item.header)
        if item.payload is not None:
            incoming.payload = self.sink(item.header, item.payload.nbytes)
            if incoming.payload is None:
                self.pause()
                return
            incoming.payload[:] = item.payload
        self._inbox.popleft()
        if item.kind != HANDSHAKE:
            self._other._receipts.append(item)
            self._other._bell.ring()
        self._on_message(self, incoming)

    def _taken(self) -> None:
        item = self._sent.popleft()
        self._queued -= len(item.header) + (item.payload.nbytes if item.payload is not None else 0)
        self._held -= item.held
        if item.done is not None:
            self._tell([item.done])

    def _hang_up(self) -> None:
        """The goodbye is on its way; the other answers by its end."""

    def _watch(self) -> None:
        if self._loop is not None and not self._watched:
            self._loop.watch(self._bell.fileno(), READ, self._handle)
            self._watched = True

    def _unwatch(self) -> None:
        if self._watched and self._loop is not None:
            self._loop.unwatch(self._bell.fileno())
        self._watched = False

    def _free(self) -> list[Done]:
        self._put(Item(END))
        self._bell.close()
        finished = [item.done for item in self._sent if item.done is not None]
        self._sent.clear()
        self._queued = self._held = 0
        return finished


class MemoryListener(Listener):
    def __init__(self, address: Address, identity: Identity, gone: Callable[[], object]) -> None:
        super().__init__(address, identity)
        self._gone = gone
        self._bell: Bell | None = Bell()
        self._waiting: deque[MemoryChannel] = deque()

    def knock(self, channel: MemoryChannel) -> None:
        """Called in the thread of whoever connects."""
        self._waiting.append(channel)
        if self._bell is not None:
            self._bell.ring()

    def _doors(self) -> list[int]:
        return [] if self._bell is None else [self._bell.fileno()]

    def _accept(self, door: int) -> MemoryChannel:
        if not self._waiting:
            if self._bell is not None:
                self._bell.hush()
            if not self._waiting:
                raise BlockingIOError
        return self._waiting.popleft()

    def _shut(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()
            self._gone()
        while self._waiting:
            self._waiting.popleft().abort()


class MemoryNetwork:
    """Nodes that share one such object can reach each other."""

    def __init__(self, *, token: str | None = None, limits: Limits | None = None) -> None:
        self.clock = time.monotonic
        self._token = token
        self._limits = limits or Limits()
        self._listeners: dict[str, MemoryListener] = {}
        self._names = itertools.count()

    def listen(self, hello: bytes = b"", config: str = "") -> Listener:
        name = str(next(self._names))
        identity = Identity(self._token, config, hello)
        listener = MemoryListener(Address(memory=name), identity, lambda: self._listeners.pop(name))
        self._listeners[name] = listener
        return listener

    def connect(self, address: Address, hello: bytes = b"", config: str = "", deadline: float | None = None) -> Channel:
        identity = Identity(self._token, config, hello)
        listener = self._listeners.get(address.memory or "")
        if listener is None:
            raise Unreachable(str(address), "nobody listens there")
        one, other = MemoryChannel.pair("memory", str(address), self._limits)
        listener.knock(other)
        deadline = self.clock() + HANDSHAKE_SECONDS if deadline is None else deadline
        return introduce(one, identity, deadline, self.clock)
