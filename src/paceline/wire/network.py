"""How nodes find each other: `listen` gives an address, `connect` takes one and gives a channel.

The wire is chosen for each pair: shared memory if both are on one host and the Unix socket answers, else TCP. The
option `wire` overrides that. Loopback only, unless told otherwise, and then a token is needed.

Who may connect: over Unix sockets only processes of the same user or root, which the kernel vouches for; then whoever
knows the token, if there is one. The token opens a connection and does not protect what goes over it; between hosts
where others can listen or meddle, use TLS. Within one host nothing is encrypted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Literal

from paceline.wire.address import Address, host_id, is_loopback, is_wildcard
from paceline.wire.channel import Channel, Limits
from paceline.wire.errors import ChannelClosed, HandshakeRefused, NetworkError, Timeout, Unreachable
from paceline.wire.greeting import HANDSHAKE_SECONDS, Identity, introduce
from paceline.wire.listener import Listener
from paceline.wire.shared_memory import SharedMemoryChannel
from paceline.wire.tcp import TCPChannel
from paceline.wire.tls import TLS, TLSChannel, accepted, connected

Choice = Literal["auto", "tcp", "shared-memory"]
Clock = Callable[[], float]

BACKLOG = 512
RETRY = 0.002  # seconds between attempts while a Unix listener's backlog is full
LOOPBACK_BUFFER = 512 * 1024  # bytes: more would fall out of the cache, and a network's delay is not to be bridged


class SocketNetwork:
    """What a node needs to listen and to connect. Nothing is opened before that."""

    def __init__(
        self,
        *,
        token: str | None = None,
        tls: TLS | None = None,
        bind: str = "127.0.0.1",
        advertise: str | None = None,
        port: int = 0,
        wire: Choice = "auto",
        limits: Limits | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        if token == "":
            raise NetworkError(bind, "an empty token protects nothing; give a secret, or None on loopback")
        if not is_loopback(bind) and token is None:
            raise NetworkError(bind, "is open to other machines: give a token, or bind to 127.0.0.1")
        if is_wildcard(bind) and advertise is None:
            raise NetworkError(bind, "stands for every address: say in `advertise` which one others are to use")
        if wire not in ("auto", "tcp", "shared-memory"):
            raise NetworkError(bind, f"there is no wire {wire!r}; auto, tcp and shared-memory are there")
        self.clock = clock
        self._token = token
        self._tls = tls
        self._bind = bind
        self._advertise = advertise or bind
        self._port = port
        self._wire = wire
        self._limits = limits or Limits()

    def listen(self, hello: bytes = b"", config: str = "") -> Listener:
        """Open the doors; `Loop.listen` lets people in."""
        identity = Identity(self._token, config, hello)
        context = None if self._tls is None else self._tls.context("accepts")
        host = host_id()
        tcp = self._listen_tcp() if self._wire != "shared-memory" else None
        unix = None
        if self._wire != "tcp" and host:
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            name = f"paceline-{secrets.token_hex(12)}"
            unix.bind("\0" + name)
            unix.listen(BACKLOG)
        elif tcp is None:
            raise NetworkError(self._bind, "there is no shared memory with descriptors on this system; use tcp")
        address = Address(
            host=self._advertise if tcp is not None else None,
            port=tcp.getsockname()[1] if tcp is not None else 0,
            unix=name if unix is not None else None,
            host_id=host,
        )
        return SocketListener(address, identity, tcp, unix, context, self._limits)

    def connect(self, address: Address, hello: bytes = b"", config: str = "", deadline: float | None = None) -> Channel:
        """Connect and shake hands, until the deadline (of the network's clock) at most."""
        deadline = self.clock() + HANDSHAKE_SECONDS if deadline is None else deadline
        identity = Identity(self._token, config, hello)
        return introduce(self._reach(address, deadline), identity, deadline, self.clock)

    def _reach(self, address: Address, deadline: float) -> Channel:
        near = address.unix is not None and address.host_id != "" and address.host_id == host_id()
        if self._wire != "tcp" and near:
            sock = self._connect_unix(address, deadline)
            if sock is not None:
                return _near(sock, f"unix {address.unix}", self._limits)
        if self._wire == "shared-memory":
            raise Unreachable(str(address), "is not on this host, or its Unix socket does not answer")
        if address.host is None:
            raise Unreachable(str(address), "has no TCP address; it listens for shared memory only")
        sock = self._connect_tcp(address.host, address.port, deadline)
        _tune(sock)
        if self._tls is None:
            return TCPChannel(sock, str(address), self._limits)
        name = self._tls.server_name or address.host
        return TLSChannel(connected(sock, self._tls.context("connects"), name), str(address), self._limits)

    def _listen_tcp(self) -> socket.socket:
        try:
            family, _, _, _, where = socket.getaddrinfo(self._bind, self._port, type=socket.SOCK_STREAM)[0]
            tcp = socket.create_server(where, family=family, backlog=BACKLOG)
            _suit_loopback(tcp, where[0])
        except (OSError, OverflowError, UnicodeError) as error:
            why = f"cannot be listened on: {error}"
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                why = "is taken by another process; choose another port, or 0 for any that is free"
            raise NetworkError(f"{self._bind}:{self._port}", why) from None
        tcp.setblocking(False)
        return tcp

    def _connect_unix(self, address: Address, deadline: float) -> socket.socket | None:
        """None if nobody is there."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        while True:
            try:
                sock.connect(f"\0{address.unix}")
                return sock
            except BlockingIOError:
                if self.clock() >= deadline:
                    sock.close()
                    raise Timeout(str(address), "does not accept connections") from None
                time.sleep(RETRY)
            except OSError:
                sock.close()
                return None

    def _connect_tcp(self, host: str, port: int, deadline: float) -> socket.socket:
        peer = f"{host}:{port}"
        why = "the deadline has passed"
        try:
            places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, OverflowError, UnicodeError) as error:
            raise Unreachable(peer, f"is not known: {error}") from None
        for family, kind, protocol, _, where in places:
            left = deadline - self.clock()
            if left <= 0:
                break
            sock = socket.socket(family, kind, protocol)
            _suit_loopback(sock, where[0])
            try:
                sock.settimeout(left)
                sock.connect(where)
                return sock
            except TimeoutError:
                sock.close()
                raise Timeout(peer, "does not answer") from None
            except OSError as error:
                sock.close()
                why = f"cannot be reached: {error.strerror or error}"
        raise Unreachable(peer, why)


class SocketListener(Listener):
    def __init__(
        self,
        address: Address,
        identity: Identity,
        tcp: socket.socket | None,
        unix: socket.socket | None,
        context: ssl.SSLContext | None,
        limits: Limits,
    ) -> None:
        super().__init__(address, identity)
        self._sockets = {sock.fileno(): sock for sock in (tcp, unix) if sock is not None}
        self._context = context
        self._limits = limits

    def _doors(self) -> list[int]:
        return list(self._sockets)

    def _accept(self, door: int) -> Channel:
        listening = self._sockets[door]
        sock, where = listening.accept()
        if listening.family == socket.AF_UNIX:
            return _near(sock, "unix", self._limits)
        peer = f"{where[0]}:{where[1]}"
        try:
            _tune(sock)
            if self._context is None:
                return TCPChannel(sock, peer, self._limits)
            return TLSChannel(accepted(sock, self._context), peer, self._limits)
        except OSError as error:
            sock.close()
            raise ChannelClosed(peer, f"it was gone before it was let in: {error}") from None

    def _shut(self) -> None:
        for sock in self._sockets.values():
            sock.close()
        self._sockets.clear()


def _near(sock: socket.socket, peer: str, limits: Limits) -> Channel:
    """A channel over a Unix socket, if the other end belongs to us or to root: its name has no permissions."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid not in (0, os.getuid()):
        sock.close()
        raise HandshakeRefused(f"{peer}, process {pid}", "user", f"user {uid}, here {os.getuid()}")
    return SharedMemoryChannel(sock, f"{peer}, process {pid}", limits)


def _suit_loopback(sock: socket.socket, host: str | int) -> None:
    """If it is one; between hosts the kernel knows better. Before it is connected; what a listener accepts is like it.

    There is no network to be congested, so nothing should pace what is sent, as some kernels' default (BBR) does.
    """
    if is_loopback(str(host)):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOOPBACK_BUFFER)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LOOPBACK_BUFFER)
        with contextlib.suppress(OSError):  # it is in every kernel, but somebody may have forbidden it
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


def _tune(sock: socket.socket) -> None:
    """No TCP_USER_TIMEOUT, which would also end the connection to a peer that is well and does not read for a while."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
