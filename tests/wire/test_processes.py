"""Real processes at both ends: what arrives, what happens when one is killed, and how much memory a flood takes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest

from paceline.wire import Address, ChannelClosed, Limits, Loop, Segment
from tests.wire.peer import SIZE, TIMES
from tests.wires import End, network, turn_until

ROOT = Path(__file__).parents[2]

every_socket = pytest.mark.parametrize("wire", ["shared-memory", "tcp", "tls"])


class Other:
    """The other process, and our end of the channel to it."""

    def __init__(self, role: str, wire: str) -> None:
        command = [sys.executable, "-m", "tests.wire.peer", role, wire]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.stdout = self.process.stdout
        address = msgspec.json.decode(self.stdout.readline(), type=Address)
        self.loop = Loop()
        self.channel = network(wire, Limits(payload=200_000_000)).connect(address, b"test", "config")

    def until_closed(self, end: End) -> ChannelClosed:
        turn_until(self.loop, lambda: bool(end.errors))
        error = end.errors[0]
        assert isinstance(error, ChannelClosed)
        return error


@contextmanager
def other(role: str, wire: str) -> Iterator[Other]:
    made = Other(role, wire)
    try:
        yield made
    finally:
        made.loop.close()
        made.process.kill()
        made.process.wait()
        made.stdout.close()


@every_socket
def test_what_is_sent_comes_back(wire: str) -> None:
    random = Random(5)
    with other("echo", wire) as there:
        end = End(there.loop, there.channel)
        segment = Segment(2_000_000, "test")
        segment.view[:] = random.randbytes(2_000_000)
        there.channel.share(segment)
        sent: list[tuple[bytes, bytes | None]] = [(b"bare", None)]
        end.send(b"bare")
        for n, size in enumerate([0, 1, 4096, 65_536, 65_537, 1_000_001, 2_000_000] * 3):
            end.send(b"%d" % n, segment.view[:size])
            sent.append((b"%d" % n, bytes(segment.view[:size])))
        turn_until(there.loop, lambda: len(end.received) == len(sent))
        assert end.received == sent
        turn_until(there.loop, lambda: len(end.done) == len(sent))
        there.channel.close("that was all")
        assert there.stdout.readline().startswith("closed")
        turn_until(there.loop, lambda: there.process.poll() is not None)
        assert there.process.returncode == 0


@every_socket
def test_a_killed_peer_is_noticed(wire: str) -> None:
    with other("echo", wire) as there:
        end = End(there.loop, there.channel)
        there.channel.peer = "worker 3"
        there.process.send_signal(signal.SIGKILL)
        assert str(there.until_closed(end)).startswith("worker 3: ")


@every_socket
def test_a_peer_that_is_killed_within_a_payload_is_noticed_and_nothing_of_it_is_delivered(wire: str) -> None:
    with other("bulk", wire) as there:
        end = End(there.loop, there.channel)
        landing = memoryview(bytearray(150_000_000))

        def sink(header: bytes, size: int) -> memoryview:
            there.process.send_signal(signal.SIGKILL)
            there.process.wait()
            return landing

        there.channel.sink = sink
        there.until_closed(end)
        assert end.received == []


@every_socket
def test_a_peer_that_is_killed_while_we_send_is_noticed_and_frees_what_was_sent(wire: str) -> None:
    with other("echo", wire) as there:
        os.kill(there.process.pid, signal.SIGSTOP)
        end = End(there.loop, there.channel)
        segment = Segment(1_000_000, "test")
        there.channel.share(segment)
        end.send(b"lent", segment.view)
        for n in range(10):
            end.send(b"%d" % n, bytes(3_000_000))
        there.process.send_signal(signal.SIGKILL)
        there.until_closed(end)
        turn_until(there.loop, lambda: len(end.done) == 11)


def test_what_a_killed_peer_lent_can_still_be_read() -> None:
    with other("lend", "shared-memory") as there:
        end = End(there.loop, there.channel)
        end.keep = True
        turn_until(there.loop, lambda: bool(end.kept))
        there.process.send_signal(signal.SIGKILL)
        there.until_closed(end)
        payload = end.kept[0].payload
        assert payload is not None
        assert bytes(payload) == b"L" * SIZE
        end.kept[0].release()


@every_socket
def test_a_flood_takes_no_memory_on_either_side(wire: str) -> None:
    """A gigabyte is sent to a reader that does not read, and then reads into one buffer."""
    with other("flood", wire) as there:
        end = End(there.loop, there.channel)
        end.on_message = lambda incoming: end.received.clear()
        room, landing = False, memoryview(bytearray(SIZE))
        landing[::4096] = bytes(len(landing[::4096]))
        last = b""

        def sink(header: bytes, size: int) -> memoryview | None:
            nonlocal last
            last = header
            return landing if room else None

        there.channel.sink = sink
        turn_until(there.loop, lambda: last == b"0")
        before = resident()
        said = there.stdout.readline()
        queued, grew = (int(number) for number in re.findall(r"-?\d+", said))
        assert queued > (TIMES - 20) * SIZE
        assert grew < 20_000_000
        for _ in range(20):
            there.loop.run_once(0)
        assert resident() - before < 20_000_000
        room = True
        there.channel.resume()
        turn_until(there.loop, lambda: last == b"%d" % (TIMES - 1) and there.channel._reader.rest is None)  # type: ignore[attr-defined]
        assert resident() - before < 40_000_000


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
