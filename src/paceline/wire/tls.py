"""TLS for TCP channels, over the same loop. Both sides show a certificate, and both check it against the authority."""

from __future__ import annotations

import socket
import ssl

from msgspec import Struct

from paceline.wire.channel import Limits
from paceline.wire.errors import HandshakeRefused, NetworkError
from paceline.wire.handshake import Side
from paceline.wire.stream import StreamChannel

MOST_AT_ONCE = 256 * 1024  # bytes handed to the library in one call


class TLS(Struct, frozen=True):
    """Paths of PEM files: this node's certificate and key, and the authority that signed everyone's.

    Whoever connects checks that the certificate is for the host it meant to reach or, if that is given, for
    `server_name`: one name in the certificates of all nodes, for clusters whose hosts have no names. Whoever accepts
    checks that the other's certificate comes from the authority, whatever it is for.
    """

    certificate: str
    key: str
    authority: str
    server_name: str | None = None

    def context(self, side: Side) -> ssl.SSLContext:
        """Read the files. For the side that connects or for the one that accepts."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if side == "accepts" else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_cert_chain(self.certificate, self.key)
            context.load_verify_locations(self.authority)
        except OSError as error:
            raise NetworkError("TLS", f"{self.certificate}, {self.key} or {self.authority}: {error}") from None
        return context


def accepted(sock: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Nothing is sent or received yet."""
    sock.setblocking(False)
    return context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def connected(sock: socket.socket, context: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    sock.setblocking(False)
    return context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=name)


class TLSChannel(StreamChannel):
    """TLS's own handshake takes place within the first reads and writes."""

    _sock: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket, peer: str, limits: Limits) -> None:
        super().__init__(sock, peer, limits)

    def _hand_over(self, frame: bytes, payload: memoryview | None) -> int:
        return self._hand_over_batch([memoryview(frame)] if payload is None else [memoryview(frame), payload], None)

    def _hand_over_batch(self, buffers: list[memoryview], descriptor: int | None) -> int:
        sent = 0
        try:
            for data in buffers:
                while data:
                    count = self._sock.send(data[:MOST_AT_ONCE])
                    sent += count
                    data = data[count:]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
            self._write_needs_read = isinstance(error, ssl.SSLWantReadError)
            if not sent:
                raise BlockingIOError from None
        return sent

    def _receive(self, room: memoryview) -> int:
        self._read_needs_write = False
        try:
            return self._sock.recv_into(room)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self._read_needs_write = isinstance(error, ssl.SSLWantWriteError)
            raise BlockingIOError from None
        finally:
            self._write_needs_read = False
            self._watch()

    def _lost(self, error: OSError) -> None:
        if self._state == "greeting" and isinstance(error, ssl.SSLError):
            self.fail(HandshakeRefused(self.peer, "tls", f"TLS failed: {error.strerror or error}"))
        else:
            super()._lost(error)

    def _pending(self) -> int:
        return self._sock.pending()

    def _read(self) -> None:
        super()._read()
        if self._taking and self._loop is not None and self._pending():
            self._loop.call_soon(self._read)

    def _go_on(self) -> None:
        super()._go_on()
        self._read()
