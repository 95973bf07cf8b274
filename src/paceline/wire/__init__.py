"""How it travels: channels over shared memory, TCP or, in tests, within one process, and the loop that drives them."""

from paceline.wire.address import Address, host_id
from paceline.wire.channel import Channel, Incoming, Limits
from paceline.wire.errors import (
    ChannelClosed,
    FrameError,
    HandshakeRefused,
    NetworkError,
    SegmentError,
    SlowReader,
    Timeout,
    Unreachable,
    WireError,
)
from paceline.wire.headers import decode
from paceline.wire.listener import Listener
from paceline.wire.loop import Loop, Timer
from paceline.wire.memory import MemoryNetwork
from paceline.wire.network import SocketNetwork
from paceline.wire.segment import Segment
from paceline.wire.tls import TLS

__all__ = [
    "TLS",
    "Address",
    "Channel",
    "ChannelClosed",
    "FrameError",
    "HandshakeRefused",
    "Incoming",
    "Limits",
    "Listener",
    "Loop",
    "MemoryNetwork",
    "NetworkError",
    "Segment",
    "SegmentError",
    "SlowReader",
    "SocketNetwork",
    "Timeout",
    "Timer",
    "Unreachable",
    "WireError",
    "decode",
    "host_id",
]
