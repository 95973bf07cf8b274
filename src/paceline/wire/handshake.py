"""How two peers find out whether they want each other, as a pure machine: messages in, messages out.

    connects                                accepts
    Opening    protocol, nonce     ->
                                   <-       Challenge  protocol, nonce
    Proof      proof, config, hello ->
                                   <-       Accepted   proof, hello        or, at any time, Refused  code, why

A proof is an HMAC, under the token, of both nonces and what the side says, so that both show that they know the token
without telling it, and neither proof can be used again or handed back. Whoever connects has to prove first. A stranger
learns the protocol's version and nothing else. Without a token the key is empty: the same code, and no secret.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Literal

import msgspec
from msgspec import Struct

from paceline.wire.errors import FrameError, HandshakeRefused, NetworkError, readable
from paceline.wire.frames import MAX_HANDSHAKE
from paceline.wire.headers import decode

PROTOCOL = 1
NONCE = 32  # bytes
MAX_HELLO = 4 * 1024
MAX_CONFIG = 256  # characters

CODES = ("protocol", "configuration", "token", "malformed")  # what a refusal may be for
Side = Literal["connects", "accepts"]


class Opening(Struct, frozen=True, tag=True):
    protocol: int
    nonce: bytes


class Challenge(Struct, frozen=True, tag=True):
    protocol: int
    nonce: bytes


class Proof(Struct, frozen=True, tag=True):
    proof: bytes
    config: str
    hello: bytes


class Accepted(Struct, frozen=True, tag=True):
    proof: bytes
    hello: bytes


class Refused(Struct, frozen=True, tag=True):
    code: str
    why: str


Message = Opening | Challenge | Proof | Accepted | Refused

_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Handshake:
    """One side of one handshake. `nonce` must be random and new; `config` and `hello` are what this side says."""

    def __init__(
        self, side: Side, *, token: str | None, config: str, hello: bytes, nonce: bytes, protocol: int = PROTOCOL
    ) -> None:
        if len(hello) > MAX_HELLO or len(config) > MAX_CONFIG or len(nonce) != NONCE:
            raise NetworkError(
                "handshake",
                f"a hello of {len(hello)} bytes, a configuration of {len(config)} characters, a nonce of {len(nonce)}"
                f" bytes; at most {MAX_HELLO} and {MAX_CONFIG}, and {NONCE} can be",
            )
        self.done = False
        self.hello = b""  # the peer's
        self._side = side
        self._key = (token or "").encode()
        self._config = config
        self._mine = hello
        self._nonce = nonce
        self._other = b""  # the peer's nonce
        self._protocol = protocol

    def start(self) -> bytes | None:
        """What this side says unasked."""
        return _encode(Opening(self._protocol, self._nonce)) if self._side == "connects" else None

    def receive(self, data: bytes) -> bytes | None:
        """Take a message in; say what to answer. Raises HandshakeRefused, which `refusal` puts into a message."""
        try:
            message = decode(_decoder, data, "")
        except FrameError as error:
            raise HandshakeRefused("", "malformed", f"what came is no handshake: {error.why}") from None
        if isinstance(message, Refused):
            code = message.code if message.code in CODES else "unknown"
            raise HandshakeRefused("", code, readable(message.why[:1024]), told=True)
        if self.done:
            raise HandshakeRefused("", "malformed", "the handshake is over already")
        if self._side == "accepts" and isinstance(message, Opening) and not self._other:
            self._meet(message)
            return _encode(Challenge(self._protocol, self._nonce))
        if self._side == "connects" and isinstance(message, Challenge) and not self._other:
            self._meet(message)
            return _encode(Proof(self._proof("connects", self._config, self._mine), self._config, self._mine))
        if self._side == "accepts" and isinstance(message, Proof) and self._other:
            return self._accept(message)
        if self._side == "connects" and isinstance(message, Accepted) and self._other:
            self._check_token(message.proof, self._proof("accepts", self._config, message.hello))
            self._finish(message.hello)
            return None
        raise HandshakeRefused("", "malformed", f"{type(message).__name__} does not belong here")

    def refusal(self, error: HandshakeRefused) -> bytes | None:
        """What to tell the peer about an error that `receive` raised."""
        impostor = self._side == "connects" and error.code == "token"
        return None if error.told or impostor else _encode(Refused(error.code, error.why[:1024]))

    def _meet(self, message: Opening | Challenge) -> None:
        if message.protocol != self._protocol:
            raise HandshakeRefused("", "protocol", f"protocol {message.protocol}, here {self._protocol}")
        if len(message.nonce) != NONCE or message.nonce == self._nonce:
            raise HandshakeRefused("", "malformed", f"a nonce of {len(message.nonce)} bytes; {NONCE}, and its own")
        self._other = message.nonce

    def _accept(self, message: Proof) -> bytes:
        self._check_token(message.proof, self._proof("connects", message.config, message.hello))
        if message.config != self._config:
            raise HandshakeRefused(
                "",
                "configuration",
                f"the configuration's hash differs: {message.config[:MAX_CONFIG]!r}, here {self._config!r}",
            )
        self._finish(message.hello)
        return _encode(Accepted(self._proof("accepts", self._config, self._mine), self._mine))

    def _check_token(self, proof: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(proof, expected):
            raise HandshakeRefused("", "token", "the token is wrong or missing")

    def _finish(self, hello: bytes) -> None:
        if len(hello) > MAX_HELLO:
            raise HandshakeRefused("", "malformed", f"a hello of {len(hello)} bytes; at most {MAX_HELLO}")
        self.hello = hello
        self.done = True

    def _proof(self, side: Side, config: str, hello: bytes) -> bytes:
        nonces = self._nonce + self._other if self._side == "connects" else self._other + self._nonce
        digests = hashlib.sha256(config.encode()).digest() + hashlib.sha256(hello).digest()
        return hmac.digest(self._key, b"paceline " + side.encode() + nonces + digests, "sha256")


assert MAX_HELLO + 4 * MAX_CONFIG + 256 <= MAX_HANDSHAKE
