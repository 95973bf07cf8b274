"""What every wire must do, whatever it is made of."""

from __future__ import annotations

from random import Random

import pytest

from paceline.wire import Segment
from tests.wires import WIRES, wires

SIZES = [0, 1, 7, 4096, 65535, 65536, 65537, 1 << 20, 5_000_001]


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_messages_arrive_in_order_and_whole(wire: str) -> None:
    random = Random(1)
    sent: list[tuple[bytes, bytes | None]] = [(b"no payload", None), (b"", None)]
    sent += [(b"%d" % size, random.randbytes(size)) for size in SIZES]
    with wires(wire) as made:
        one, other = made.pair()
        for header, payload in sent:
            one.send(header, payload)
        made.until(lambda: len(other.received) == len(sent))
        assert other.received == sent
        made.until(lambda: one.done == len(sent))
        assert one.channel.queued_bytes == 0


def test_big_payloads_in_both_directions_at_once_do_not_block_each_other(wire: str) -> None:
    payload = Random(2).randbytes(20_000_000)
    with wires(wire) as made:
        one, other = made.pair()
        for n in range(3):
            one.send(b"%d" % n, payload)
            other.send(b"%d" % n, payload)
        made.until(lambda: len(one.received) == len(other.received) == 3)
        assert one.received == other.received == [(b"%d" % n, payload) for n in range(3)]
        made.until(lambda: one.done == other.done == 3)


def test_payloads_in_a_shared_segment_arrive_too(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        segment = Segment(3_000_000, "test")
        segment.view[:] = content = Random(3).randbytes(3_000_000)
        one.channel.share(segment)
        for start, stop in [(0, 3_000_000), (1, 70_001), (12_345, 12_350), (2_900_000, 3_000_000)]:
            one.send(b"%d" % start, segment.view[start:stop])
        made.until(lambda: len(other.received) == 4)
        assert [payload for _, payload in other.received] == [
            content,
            content[1:70_001],
            content[12_345:12_350],
            content[2_900_000:],
        ]
        made.until(lambda: one.done == 4)


def test_a_reason_is_told_to_the_other_side(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        one.send(b"last words")
        one.channel.close("lunch")
        made.until(lambda: bool(other.errors))
        assert other.received == [(b"last words", None)]
        assert "lunch" in str(other.errors[0])
        assert not one.errors
        made.until(lambda: not made.loop.channels)
