"""Channels: ordered, reliable ways to one peer for small messages, each with a bulk payload if it needs one.

A channel never blocks and has no thread. It belongs to one loop, and everything on it (`send`, `resume`, `close`,
`Incoming.release`) is called in the thread of that loop, or of whoever is going to add it to one. What happens to it
comes as calls from the loop: messages, the end of the channel, and `done()` of what was sent.

    done()      the payload's memory is free again: it is handed to the kernel or, by reference, the receiver released
                it. Called once for every `send`, never within `send`; at the latest when the channel ends, and then a
                peer that is still alive may be reading: take other memory for another channel to the same peer.
    sink        says where an inline payload goes, as soon as its header is there: a writable view of bytes, as long as
                the payload. None: no room now; the channel reads no more until `resume()`, and asks again. In that
                time it learns that the peer is gone only if it sends. A WireError ends the channel.
    close(why)  no more messages in or out; what is queued and the reason still go out, for as long as LINGER at most
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from paceline.wire.errors import ChannelClosed, FrameError, NetworkError, SlowReader, WireError, readable
from paceline.wire.frames import GOODBYE, HANDSHAKE, MAX_GOODBYE, MAX_HEADER, Sink, fresh
from paceline.wire.outbox import Done

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

    from paceline.wire.loop import Loop, Timer
    from paceline.wire.segment import Segment

Wire = Literal["memory", "shared-memory", "tcp"]
OnMessage = Callable[["Channel", "Incoming"], None]
OnClosed = Callable[["Channel", WireError], None]
State = Literal["greeting", "open", "closing", "closed"]

LINGER = 0.5  # seconds that a closed channel may take to say goodbye


class Limits(Struct, frozen=True):
    """How much a peer may ask of us, in bytes, and how much may wait for it."""

    header: int = MAX_HEADER
    payload: int = 1 << 30
    queued: int = 16 << 20  # headers and small payloads that a slow reader may leave in our memory
    segments: int = 64  # how many shared segments it may offer
    shared: int = 1 << 40  # and how large they may be together

    def __post_init__(self) -> None:
        if not 0 < self.header <= MAX_HEADER or self.payload < 0 or self.queued <= 0:
            raise NetworkError("limits", f"{self} cannot be; a header has up to {MAX_HEADER} bytes")


class Incoming:
    """One message. `payload` is what the sink gave, or a read-only view of a segment that ends with `release`."""

    __slots__ = ("_release", "header", "payload")

    def __init__(self, header: bytes, payload: memoryview | None = None, release: Done | None = None) -> None:
        self.header = header
        self.payload = payload
        self._release = release

    def release(self) -> None:
        """We are done with the payload's memory. May be said twice."""
        release, self._release = self._release, None
        if release is not None:
            self.payload = None
            release()


class Channel(ABC):
    """What all wires have in common: the states of a channel, and what its loop is told."""

    wire: Wire

    def __init__(self, peer: str, limits: Limits) -> None:
        self.peer = peer
        self.limits = limits
        self.hello = b""  # what the peer said of itself in the handshake
        self.sink: Sink = fresh
        self._state: State = "greeting"
        self._loop: Loop | None = None
        self._on_message: OnMessage = _nobody
        self._on_closed: OnClosed = _nobody
        self._paused = False
        self._taking = False  # whether messages are taken now: of the three above
        self._error: WireError | None = None
        self._finished: list[Done] = []  # to be told once a loop is there
        self._lingering: Timer | None = None

    @property
    def closed(self) -> bool:
        """Nothing can be sent any more."""
        return self._state in ("closing", "closed")

    # What users call.

    @abstractmethod
    def send(self, header: bytes, payload: Buffer | None = None, done: Done | None = None) -> None:
        """Send a message after all that were sent before. Raises ChannelClosed once the channel has ended."""

    def share(self, segment: Segment) -> None:  # noqa: B027 most wires need not do anything
        """Later payloads that lie in this segment may go by reference, where the wire can do that."""

    def unshare(self, segment: Segment) -> None:  # noqa: B027
        """No more of them will; the peer gives the segment up when it has released the last."""

    @property
    @abstractmethod
    def queued_bytes(self) -> int:
        """What was sent and is not handed over yet; on shared memory without what is lent by reference."""

    def pause(self) -> None:
        """Take no more messages until `resume`."""
        self._paused = True
        self._changed()

    def resume(self) -> None:
        """Go on reading; where the sink had no room it is asked again."""
        if self._paused and self._loop is not None:
            self._loop.call_soon(self._go_on)
        self._paused = False

    def close(self, why: str = "") -> None:
        """End the channel and tell the peer why. `on_closed` is not called for it."""
        if self._state == "greeting":
            self._end()
        elif self._state == "open":
            self._part(why)

    def abort(self) -> None:
        """End the channel at once, without a word."""
        if self._state != "closed":
            self._end()

    # What the loop and the handshake call.

    def attach(self, loop: Loop, on_message: OnMessage, on_closed: OnClosed) -> None:
        self._loop, self._on_message, self._on_closed = loop, on_message, on_closed
        for done in self._finished:
            loop.call_soon(done)
        self._finished.clear()
        if self._state == "closed":
            error = self._error or ChannelClosed(self.peer, "the channel was closed before")
            loop.call_soon(lambda: on_closed(self, error))
            return
        loop.call_soon(self._go_on)

    def detach(self) -> None:
        """Leave the loop without an end; what has been received stays here."""
        self._unwatch()
        self._loop = None
        self._changed()
        self._on_message = self._on_closed = _nobody

    def greet(self, message: bytes) -> None:
        self._say(HANDSHAKE, message)

    def open(self) -> None:
        """The handshake is done."""
        self._state = "open"

    def fail(self, error: WireError) -> None:
        """End the channel for this reason. The peer is told, unless it is gone or does not listen."""
        if self._state in ("closing", "closed"):
            return
        error.peer = error.peer or self.peer
        self._error = error.with_traceback(None)  # which would keep this channel, and so itself, in memory
        loop, on_closed = self._loop, self._on_closed
        if self._state == "greeting" or isinstance(error, ChannelClosed | SlowReader):
            self._end()
        else:
            self._part(error.why)
        if loop is not None:
            loop.counters[error.cause] += 1
            loop.call_soon(lambda: on_closed(self, error))

    # What a wire must do.

    @abstractmethod
    def _say(self, kind: int, header: bytes) -> None:
        """Send a frame that is no message."""

    @abstractmethod
    def _watch(self) -> None:
        """Let the loop watch for what this channel can use now."""

    @abstractmethod
    def _unwatch(self) -> None:
        """Let the loop forget this channel."""

    @abstractmethod
    def _go_on(self) -> None:
        """Handle what has been received already, and let the loop watch for more."""

    @abstractmethod
    def _hang_up(self) -> None:
        """In state closing: end the way out as soon as all is written."""

    @abstractmethod
    def _free(self) -> list[Done]:
        """Give up sockets and memory. Returns whom to tell that its payload is free."""

    def _changed(self) -> None:
        """The state, the loop or whether it is paused is another now."""
        self._taking = self._loop is not None and not self._paused and self._state in ("greeting", "open")
        if self._state != "closed":
            self._watch()

    def _part(self, why: str) -> None:
        """Say goodbye, and leave when the peer has left or LINGER is over."""
        self._state = "closing"
        self._say(GOODBYE, why.encode()[:MAX_GOODBYE])
        if self._loop is None:
            self._end()
            return
        self._lingering = self._loop.call_at(self._loop.clock() + LINGER, self._end)
        self._changed()
        self._hang_up()

    def _end(self) -> None:
        self._state = "closed"
        self._taking = False
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        self._unwatch()
        self._tell(self._free())
        if self._loop is not None:
            self._loop.forget(self)

    def _tell(self, finished: list[Done]) -> None:
        if self._loop is None:
            self._finished += finished
        else:
            for done in finished:
                self._loop.call_soon(done)

    def _check(self, header: bytes, size: int) -> None:
        """What the other side would refuse is not even sent."""
        if self._state != "open":
            raise ChannelClosed(self.peer, "nothing can be sent over a channel that has ended or is not open yet")
        if len(header) > self.limits.header or size > self.limits.payload:
            raise FrameError(
                self.peer,
                f"a message of {len(header)} and {size} bytes is too large;"
                f" at most {self.limits.header} of header and {self.limits.payload} of payload can go",
            )


def left(peer: str, header: bytes) -> ChannelClosed:
    """What a goodbye means."""
    why = readable(header.decode(errors="replace"))
    return ChannelClosed(peer, f"it closed the channel: {why}" if why else "it closed the channel")


def _nobody(channel: Channel, what: object) -> None:
    """Nobody listens yet."""
