"""Who can reach whom, over which wire, and who is kept out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import msgspec
import pytest

from paceline.wire import (
    TLS,
    Address,
    ChannelClosed,
    FrameError,
    HandshakeRefused,
    Limits,
    Loop,
    MemoryNetwork,
    NetworkError,
    SocketNetwork,
    Timeout,
    Unreachable,
    host_id,
)
from paceline.wire.network import Choice
from tests.wires import End, connect, tls, turn_until, wires


def meet(server: SocketNetwork, client: SocketNetwork, change: dict[str, object] | None = None) -> str:
    """Connect these two, and say over which wire they are."""
    with Loop() as loop:
        accepted: list[str] = []
        listener = server.listen(b"", "config")
        loop.listen(listener, lambda channel, hello: accepted.append(End(loop, channel).channel.wire))
        address = msgspec.structs.replace(listener.address, **(change or {}))
        channel = connect(loop, client, address)
        End(loop, channel)
        turn_until(loop, lambda: bool(accepted))
        assert accepted == [channel.wire]
        return channel.wire


# Which wire.


@pytest.mark.parametrize(
    ("server", "client", "change", "wire"),
    [
        ("auto", "auto", {}, "shared-memory"),
        ("auto", "shared-memory", {}, "shared-memory"),
        ("shared-memory", "auto", {}, "shared-memory"),
        ("auto", "tcp", {}, "tcp"),
        ("tcp", "auto", {}, "tcp"),
        ("auto", "auto", {"host_id": "another host"}, "tcp"),
        ("auto", "auto", {"host_id": ""}, "tcp"),
        ("auto", "auto", {"unix": "nobody-is-here"}, "tcp"),
    ],
)
def test_shared_memory_if_both_are_on_one_host_and_want_it_else_tcp(
    server: Choice, client: Choice, change: dict[str, object], wire: str
) -> None:
    assert meet(SocketNetwork(wire=server), SocketNetwork(wire=client), change) == wire


@pytest.mark.parametrize("change", [{"host_id": "another host"}, {"unix": "nobody-is-here"}, {"unix": None}])
def test_shared_memory_that_cannot_be_had_is_an_error_if_it_was_asked_for(change: dict[str, object]) -> None:
    with pytest.raises(Unreachable, match="not on this host"):
        meet(SocketNetwork(), SocketNetwork(wire="shared-memory"), change)


def test_a_listener_without_tcp_cannot_be_reached_over_it() -> None:
    with pytest.raises(Unreachable, match="shared memory only"):
        meet(SocketNetwork(wire="shared-memory"), SocketNetwork(wire="tcp"))


def test_an_address_travels_as_bytes() -> None:
    listener = SocketNetwork().listen()
    data = msgspec.msgpack.encode(listener.address)
    assert msgspec.msgpack.decode(data, type=Address) == listener.address
    assert listener.address.host_id == host_id() != ""
    listener.close()


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    assert meet(SocketNetwork(bind="::1", wire="tcp"), SocketNetwork(wire="tcp")) == "tcp"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NetworkError, match=str(port)):
            SocketNetwork(port=port).listen()


# Open doors.


@pytest.mark.parametrize("bind", ["0.0.0.0", "192.0.2.7", "::", "2001:db8::1", "machine.example", ""])
def test_an_open_door_needs_a_token(bind: str) -> None:
    with pytest.raises(NetworkError, match="token"):
        SocketNetwork(bind=bind, advertise="192.0.2.7")
    SocketNetwork(bind=bind, advertise="192.0.2.7", token="secret")


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_none(bind: str) -> None:
    SocketNetwork(bind=bind)


def test_settings_that_cannot_be_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(NetworkError, match="advertise"):
        SocketNetwork(bind="0.0.0.0", token="secret")
    with pytest.raises(NetworkError, match="empty token"):
        SocketNetwork(token="")
    with pytest.raises(NetworkError, match="no wire 'udp'"):
        SocketNetwork(wire="udp")  # type: ignore[arg-type]


def test_every_address_of_this_machine_with_a_token() -> None:
    open_door = SocketNetwork(bind="0.0.0.0", advertise="127.0.0.1", token="secret", wire="tcp")
    assert meet(open_door, SocketNetwork(token="secret")) == "tcp"
    with pytest.raises(HandshakeRefused, match="token"):
        meet(open_door, SocketNetwork())


# Who is at the Unix socket.


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_let_in_over_the_unix_socket() -> None:
    with wires("shared-memory") as made:
        script = (
            "import os, socket, sys\n"
            "os.setgid(65534); os.setuid(65534)\n"
            "sock = socket.socket(socket.AF_UNIX); sock.settimeout(20)\n"
            "sock.connect(chr(0) + sys.argv[1])\n"
            "sys.exit(len(sock.recv(1)))\n"
        )
        child = subprocess.Popen([sys.executable, "-c", script, made.listener.address.unix or ""])
        made.until(lambda: child.poll() is not None)
        assert child.returncode == 0
        assert made.loop.counters["refused: user"] == 1
        assert not made.listener._greetings


# TLS.


@pytest.mark.parametrize(
    ("server", "client", "why"),
    [
        (tls("other"), tls(), "mismatch"),
        (tls("stranger"), tls(), "certificate verify failed"),
        (tls(), tls(server_name="elsewhere.test"), "mismatch"),
        (tls(), None, "TLS|not our protocol"),
        (None, tls(), "TLS"),
    ],
)
def test_certificates_that_do_not_fit_open_nothing(server: TLS | None, client: TLS | None, why: str) -> None:
    with pytest.raises((HandshakeRefused, FrameError, ChannelClosed), match=why):
        meet(SocketNetwork(wire="tcp", tls=server), SocketNetwork(wire="tcp", tls=client))


def test_whoever_connects_must_show_a_certificate_of_the_authority_too() -> None:
    with Loop() as loop:
        accepted: list[object] = []
        listener = SocketNetwork(wire="tcp", tls=tls()).listen(b"", "config")
        loop.listen(listener, lambda channel, hello: accepted.append(channel))
        with pytest.raises((HandshakeRefused, ChannelClosed)):
            connect(loop, SocketNetwork(wire="tcp", tls=tls("stranger")), listener.address)
        turn_until(loop, lambda: loop.counters["refused: tls"] == 1)
        assert not accepted


def test_one_name_for_all_nodes() -> None:
    client = SocketNetwork(wire="tcp", tls=tls(server_name="paceline.test"))
    assert meet(SocketNetwork(wire="tcp", tls=tls()), client) == "tcp"
    client = SocketNetwork(wire="tcp", tls=tls(server_name="elsewhere.test"))
    assert meet(SocketNetwork(wire="tcp", tls=tls("other")), client) == "tcp"


def test_files_that_are_not_there_are_named_before_a_door_is_open() -> None:
    with pytest.raises(NetworkError, match=r"missing\.pem"):
        SocketNetwork(tls=TLS("missing.pem", "missing.key", "missing.ca")).listen()


# Deadlines.


@pytest.mark.parametrize("wire", ["tcp", "shared-memory"])
def test_a_listener_that_says_nothing_is_given_up_at_the_deadline(wire: Choice) -> None:
    network = SocketNetwork(wire=wire)
    listener = network.listen()
    with pytest.raises(Timeout, match="not done in time"):
        network.connect(listener.address, deadline=time.monotonic() + 0.05)
    listener.close()


def test_a_deadline_that_has_passed_is_one() -> None:
    network = SocketNetwork(wire="tcp")
    listener = network.listen()
    with pytest.raises((Timeout, Unreachable), match="deadline"):
        network.connect(listener.address, deadline=time.monotonic() - 1)
    listener.close()


def test_a_full_waiting_room_is_waited_for_until_the_deadline() -> None:
    network = SocketNetwork(wire="shared-memory")
    listener = network.listen()
    crowd = []
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        crowd.append(sock)
        try:
            sock.connect(f"\0{listener.address.unix}")
        except BlockingIOError:
            break
    with pytest.raises(Timeout, match="does not accept"):
        network.connect(listener.address, deadline=time.monotonic() + 0.05)
    for sock in crowd:
        sock.close()
    listener.close()


def test_a_host_that_is_not_known_is_named() -> None:
    with pytest.raises(Unreachable, match=r"nowhere\.invalid"):
        SocketNetwork().connect(Address(host="nowhere.invalid", port=1))


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("x" * 300, 1), ("a..b", 1)])
def test_addresses_that_cannot_be_are_nowhere(host: str, port: int) -> None:
    with pytest.raises(Unreachable):
        SocketNetwork().connect(Address(host=host, port=port))


def test_what_cannot_be_said_in_a_handshake_is_refused_at_once() -> None:
    for network in (SocketNetwork(), MemoryNetwork()):
        with pytest.raises(NetworkError, match="hello of 5000 bytes"):
            network.listen(bytes(5_000))
        listener = network.listen()
        with pytest.raises(NetworkError, match="hello of 5000 bytes"):
            network.connect(listener.address, bytes(5_000))
        listener.close()


def test_limits_that_cannot_be_are_refused() -> None:
    with pytest.raises(NetworkError, match="up to 65536"):
        Limits(header=65_537)
