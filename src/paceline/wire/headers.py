"""Headers are msgspec structs. Whatever a peer sends in place of one ends in a typed error, and never in another."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from paceline.wire.errors import FrameError

T = TypeVar("T")


def decode(decoder: msgspec.msgpack.Decoder[T], header: bytes, peer: str) -> T:
    """Raises FrameError. The decoder itself also raises on text that is none, and on nesting without end."""
    try:
        return decoder.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(peer, f"a header of {len(header)} bytes that says nothing: {error}") from None
