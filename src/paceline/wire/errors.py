"""What can go wrong on a wire. Every error names the peer, and has a cause under which the loop counts it."""

from __future__ import annotations

from typing import ClassVar


def readable(text: str) -> str:
    """What a peer says, fit for a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class WireError(Exception):
    """The base of every error that `paceline.wire` raises. `peer` may be filled in by whoever knows it."""

    kind: ClassVar[str] = "error"

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(peer, why)
        self.peer = peer
        self.why = why

    @property
    def cause(self) -> str:
        """The word under which it is counted."""
        return self.kind

    def __str__(self) -> str:
        return f"{self.peer or 'a peer'}: {self.why}"


class ChannelClosed(WireError):
    """The peer closed the channel, or is gone."""

    kind = "closed"


class FrameError(WireError):
    """Bytes that are no frame, or a frame that may not be: too large, of an unknown kind, out of its range."""

    kind = "frame"


class SegmentError(WireError):
    """Shared memory that cannot be had, or that a peer offered and that is not safe to use."""

    kind = "segment"


class SlowReader(WireError):
    """The peer reads so slowly that what is queued for it has passed its limit."""

    kind = "slow reader"


class Timeout(WireError):
    """What was waited for did not come in time."""

    kind = "timeout"


class Unreachable(WireError):
    """Nobody answers at the address, or it cannot be reached over the wire that was asked for."""

    kind = "unreachable"


class HandshakeRefused(WireError):
    """One side does not want the other. `told` says that the refusal came from the peer."""

    kind = "refused"

    def __init__(self, peer: str, code: str, why: str, *, told: bool = False) -> None:
        super().__init__(peer, why)
        self.code = code
        self.told = told

    @property
    def cause(self) -> str:
        return f"refused: {self.code}"


class NetworkError(WireError, ValueError):
    """A network that may not be as it was asked for, such as an open port without a token."""

    kind = "network"
