"""A worker's connection to a shard, and its gradients on the way to being used."""

from __future__ import annotations

from collections.abc import Callable

import torch

from paceline.nodes import messages as m
from paceline.nodes.memory import tensor_over
from paceline.wire import Channel, Incoming, Segment

SMALL = 64 * 1024  # gradients up to this size land in ordinary memory
LIVES = 1 << 32  # tells the gradients of two lives of a worker in one round apart


class Landing:
    """Where gradients that come over a socket are put, one at a time."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self._segment = Segment(size) if size > SMALL else None
        self.view = memoryview(bytearray(size)) if self._segment is None else self._segment.view
        self.values = tensor_over(self.view, dtype)
        self.taken = False
        self.paused = False  # is the channel waiting for it?

    def close(self) -> None:
        """A gradient that is still in it can be used until the end; the memory goes with the last who looks at it."""
        if self._segment is not None:
            self._segment.close()


class Line:
    """A worker's connection to this shard, and where its gradients land if they come over a socket."""

    def __init__(self, channel: Channel, member: m.Member) -> None:
        self.channel = channel
        self.member = member
        self.landing: Landing | None = None
        self.gathered: dict[int, Gradient] = {}  # by round: whose memory is still needed

    def send(
        self, message: m.AnyMessage, payload: memoryview | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """Unless the worker is gone already, which the server hears of by itself."""
        if not self.channel.closed:
            self.channel.send(m.encode(message), payload, done)
        elif done is not None:
            done()


class Gradient:
    """A gradient that has come and is still in its worker's memory."""

    def __init__(self, line: Line, push: m.Push, incoming: Incoming, dtype: torch.dtype) -> None:
        self.line = line
        self.push = push
        self.key = line.member.worker + LIVES * line.member.incarnation
        self.freed = False
        self._incoming = incoming
        self._landing = line.landing if line.landing and incoming.payload is line.landing.view else None
        assert incoming.payload is not None
        self.values = self._landing.values if self._landing else tensor_over(incoming.payload, dtype)

    def free(self) -> None:
        """It has been used: the worker may write there again."""
        if self.freed:
            return
        self.freed = True
        self._incoming.release()
        landing = self._landing
        if landing is not None:
            landing.taken = False
            if landing.paused:
                landing.paused = False
                self.line.channel.resume()

    def answer(self, outcome: m.Outcome, why: str = "") -> None:
        if self.push.answer or outcome != "applied":
            self.line.send(m.Answer(self.push.shard, self.push.iteration, outcome, why))
