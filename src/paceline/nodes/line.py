"""A worker's connection to a shard, and its gradients on the way to being used."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import torch

from paceline.nodes import messages as m
from paceline.nodes.errors import WrongRequest
from paceline.nodes.memory import Tensors, tensor_over
from paceline.params.codecs import Codec, CodecError
from paceline.params.rows import Row
from paceline.wire import Channel, Incoming, Segment

SMALL = 64 * 1024  # gradients up to this size land in ordinary memory
LIVES = 1 << 32  # tells the gradients of two lives of a worker in one round apart


class Landing:
    """Where gradients that come over a socket are put, one at a time."""

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        self._segment = Segment(size) if size > SMALL else None
        self.view = memoryview(bytearray(size)) if self._segment is None else self._segment.view
        self.values = tensor_over(self.view, dtype)
        self.row: Row = self.values.numpy()
        self.taken = False
        self.paused = False  # is the channel waiting for it?

    def close(self) -> None:
        """A gradient that is still in it can be used until the end; the memory goes with the last who looks at it."""
        if self._segment is not None:
            self._segment.close()


class Decoding(Landing):
    """Where encoded gradients of one worker are put, and the row that each is decoded to as soon as it is there.

    The row is in use until the gradient has been used, and so are the bytes, also where they are the worker's own: they
    are its credit for one gradient.
    """

    def __init__(self, codec: Codec, size: int, dtype: torch.dtype) -> None:
        super().__init__(codec.nbytes(size, dtype.itemsize), torch.uint8)
        self._codec = codec
        self.decoded = torch.zeros(size, dtype=dtype)

    def decode(self, payload: memoryview) -> torch.Tensor:
        """CodecError if these bytes are no gradient."""
        encoded = self.values if payload is self.view else tensor_over(payload, torch.uint8)
        self._codec.decode(encoded, self.decoded)
        return self.decoded


class Format:
    """What a shard takes: so many elements of a type, and gradients by this codec.

    `nbytes` is how long what comes as it is must be, and `gradient_nbytes` what comes with a push.
    """

    def __init__(self, shard: int, size: int, dtype: torch.dtype, codec: Codec | None) -> None:
        self.shard, self.size, self.dtype, self.codec = shard, size, dtype, codec
        self.nbytes = size * dtype.itemsize
        self.gradient_nbytes = self.nbytes if codec is None else codec.nbytes(size, dtype.itemsize)


class Line:
    """A worker's connection to this shard, and where its gradients land if they come over a socket."""

    def __init__(self, channel: Channel, member: m.Member, takes: Format) -> None:
        self.channel = channel
        self.member = member
        self.key = member.worker + LIVES * member.incarnation  # whose gradients these are
        self.gathered: dict[int, Gradient] = {}  # by round: whose memory is still needed
        self.residual = 0.0  # the norm of what the worker's codec held back when it last pushed
        self._takes = takes
        self._tensors = Tensors(takes.dtype)
        self._landing: Landing | None = None
        self._decoding: Decoding | None = None  # instead, for gradients that are encoded

    def landing(self, message: m.Push | m.Initial | m.Row, size: int) -> Landing:
        """Where such a payload belongs, taken or not."""
        takes = self._takes
        encoded = takes.codec is not None and isinstance(message, m.Push)
        nbytes = takes.gradient_nbytes if encoded else takes.nbytes
        if size != nbytes:
            raise WrongRequest(f"{size} bytes from worker {self.member.worker} for shard {takes.shard}: {nbytes}")
        if takes.codec is not None and encoded:
            self._decoding = self._decoding or Decoding(takes.codec, takes.size, takes.dtype)
            return self._decoding
        if self._landing is None:
            self._landing = Landing(nbytes, takes.dtype)
        return self._landing

    def gradient(self, push: m.Push, incoming: Incoming) -> Gradient:
        """What has come with a push, decoded if need be."""
        if self._takes.codec is None:
            return self._plain(push, incoming)
        payload = self._payload(incoming, self._takes.gradient_nbytes)
        decoding = self.landing(push, payload.nbytes)
        assert isinstance(decoding, Decoding)
        if payload is not decoding.view:
            if decoding.taken:
                raise WrongRequest(f"worker {self.member.worker} has a gradient under way to shard {push.shard}")
            decoding.taken = True
        if not (isfinite(push.residual) and push.residual >= 0):
            raise WrongRequest(f"worker {self.member.worker} holds back {push.residual}; it is a number from 0")
        try:
            values = decoding.decode(payload)
        except CodecError as error:
            raise WrongRequest(f"worker {self.member.worker}: {error}") from None
        self.residual = push.residual
        return Gradient(self, push, incoming, values, values.numpy(), decoding)

    def first(self, incoming: Incoming) -> Gradient:
        """What has come before any gradient: parameters, or what the optimizer is to remember."""
        return self._plain(m.Push(self._takes.shard, -1, -1), incoming)

    def _plain(self, push: m.Push, incoming: Incoming) -> Gradient:
        """What has come as it is."""
        payload, landing = self._payload(incoming, self._takes.nbytes), self._landing
        if landing is not None and payload is landing.view:
            return Gradient(self, push, incoming, landing.values, landing.row, landing)
        values = self._tensors.over(payload)
        return Gradient(self, push, incoming, values, values.numpy(), None)

    def close(self) -> None:
        """The worker is gone."""
        for landing in (self._landing, self._decoding):
            if landing is not None:
                landing.close()

    def _payload(self, incoming: Incoming, nbytes: int) -> memoryview:
        payload = incoming.payload
        if payload is None or payload.nbytes != nbytes:
            size = 0 if payload is None else payload.nbytes
            raise WrongRequest(f"shard {self._takes.shard} takes {nbytes} bytes, and {size} have come")
        return payload

    def send(
        self, message: m.AnyMessage, payload: memoryview | None = None, done: Callable[[], None] | None = None
    ) -> None:
        """Unless the worker is gone already, which the server hears of by itself."""
        if not self.channel.closed:
            self.channel.send(m.encode(message), payload, done)
        elif done is not None:
            done()


class Gradient:
    """A gradient that has come and is still in its worker's memory, or in the row that it was decoded to.

    `values` and `row` are the same numbers, for torch and for numpy.
    """

    __slots__ = ("_incoming", "_landing", "freed", "key", "line", "push", "row", "values")

    def __init__(
        self, line: Line, push: m.Push, incoming: Incoming, values: torch.Tensor, row: Row, landing: Landing | None
    ) -> None:
        self.line = line
        self.push = push
        self.key = line.key
        self.freed = False
        self._incoming = incoming
        self._landing = landing
        self.values = values
        self.row = row

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
