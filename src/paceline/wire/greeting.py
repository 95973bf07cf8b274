"""Drives one handshake over a channel in a loop, within a deadline, and says how it ended."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec import Struct

from paceline.wire.channel import Channel, Incoming
from paceline.wire.errors import HandshakeRefused, Timeout, WireError
from paceline.wire.handshake import NONCE, Handshake, Side
from paceline.wire.loop import Loop

OnGreeted = Callable[["Greeting"], None]

HANDSHAKE_SECONDS = 5.0


class Identity(Struct, frozen=True):
    """What a node says of itself in every handshake."""

    token: str | None
    config: str
    hello: bytes

    def __post_init__(self) -> None:
        self.handshake("connects")  # what cannot be said is an error now, not when the first peer comes

    def handshake(self, side: Side) -> Handshake:
        return Handshake(side, token=self.token, config=self.config, hello=self.hello, nonce=os.urandom(NONCE))


class Greeting:
    """`error` is None if the channel is open; it has left the loop then, and waits for whoever adds it again."""

    def __init__(self, loop: Loop, channel: Channel, handshake: Handshake, deadline: float, over: OnGreeted) -> None:
        self.channel = channel
        self.error: WireError | None = None
        self.over = False
        self._loop = loop
        self._handshake = handshake
        self._over = over
        self._timer = loop.call_at(deadline, self._late)

    def start(self) -> None:
        self._loop.add(self.channel, self._received, self._closed)
        first = self._handshake.start()
        if first is not None:
            self.channel.greet(first)

    def give_up(self, error: WireError) -> None:
        self.channel.fail(error)

    def _late(self) -> None:
        self.give_up(Timeout(self.channel.peer, "the handshake was not done in time"))

    def _received(self, channel: Channel, incoming: Incoming) -> None:
        try:
            answer = self._handshake.receive(incoming.header)
        except HandshakeRefused as error:
            refusal = self._handshake.refusal(error)
            if refusal is not None:
                channel.greet(refusal)
            raise
        if answer is not None:
            channel.greet(answer)
        if self._handshake.done and not channel.closed:
            self._loop.remove(channel)
            channel.hello = self._handshake.hello
            channel.open()
            self._end(None)

    def _closed(self, channel: Channel, error: WireError) -> None:
        self._end(error)

    def _end(self, error: WireError | None) -> None:
        self._timer.cancel()
        self.error = error
        self.over = True
        self._over(self)


def introduce(channel: Channel, identity: Identity, deadline: float, clock: Callable[[], float]) -> Channel:
    """Run the handshake of the side that connects, in a loop of its own."""
    with Loop(clock=clock) as loop:
        greeting = Greeting(loop, channel, identity.handshake("connects"), deadline, lambda _: None)
        greeting.start()
        loop.run(lambda: greeting.over)
    if greeting.error is not None:
        raise greeting.error
    return channel
