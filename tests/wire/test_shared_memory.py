"""How long shared memory stays mapped, on both sides, and what may be shared."""

from __future__ import annotations

import gc

import pytest

from paceline.wire import Incoming, Limits, Segment, SegmentError
from tests.wires import wires


def mappings(name: str) -> int:
    gc.collect()
    with open("/proc/self/maps") as file:
        return sum(f"memfd:{name} " in line for line in file)


def test_a_segment_is_mapped_once_at_each_end_and_given_up_when_it_is_withdrawn() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = Segment(200_000, "withdrawn")
        one.channel.share(segment)
        one.channel.share(segment)
        one.send(b"a", segment.view)
        made.until(lambda: one.done == [b"a"])
        assert mappings("withdrawn") == 2
        one.channel.unshare(segment)
        one.channel.unshare(segment)
        one.send(b"b", segment.view)
        made.until(lambda: len(other.received) == 2)
        assert mappings("withdrawn") == 1
        segment.close()
        assert mappings("withdrawn") == 0


def test_what_is_out_stays_mapped_until_it_is_released() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = Segment(200_000, "out")
        segment.view[:] = b"x" * 200_000
        one.channel.share(segment)
        other.keep = True
        one.send(b"a", segment.view)
        one.channel.unshare(segment)
        segment.close()
        made.until(lambda: bool(other.kept))
        one.send(b"b")
        made.until(lambda: len(other.received) == 2)
        assert mappings("out") == 1
        incoming = other.kept.pop(0)
        assert isinstance(incoming, Incoming)
        assert incoming.payload is not None
        assert bytes(incoming.payload) == b"x" * 200_000
        incoming.release()
        made.until(lambda: b"a" in one.done)
        assert mappings("out") == 0


def test_the_addresses_of_a_shared_segment_are_not_used_for_anything_else() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = Segment(200_000, "kept")
        one.channel.share(segment)
        segment.close()
        del segment
        assert mappings("kept") >= 1
        one.channel.abort()
        made.until(lambda: bool(other.errors))
        assert mappings("kept") == 0


def test_segments_can_be_shared_and_withdrawn_for_ever() -> None:
    with wires("shared-memory", Limits(segments=2, shared=1_000_000)) as made:
        one, other = made.pair()
        for n in range(20):
            segment = Segment(400_000, "again")
            one.channel.share(segment)
            one.send(b"%d" % n, segment.view)
            one.channel.unshare(segment)
            made.until(lambda: len(one.done) == len(other.received) == n + 1)  # noqa: B023
            segment.close()
        assert not other.errors


def test_only_what_is_ours_and_open_can_be_shared() -> None:
    with wires("shared-memory", Limits(segments=2)) as made:
        one, _ = made.pair()
        closed = Segment(100, "closed")
        closed.close()
        with pytest.raises(SegmentError, match="not closed"):
            one.channel.share(closed)
        for _ in range(2):
            one.channel.share(Segment(100, "many"))
        with pytest.raises(SegmentError, match="2 at most"):
            one.channel.share(Segment(100, "many"))


def test_a_segment_that_was_not_shared_goes_through_the_socket() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        made.share(one, 300_000)
        private = Segment(200_000, "private")
        private.view[:] = b"p" * 200_000
        other.keep = True
        one.send(b"a", private.view)
        made.until(lambda: bool(other.kept))
        assert other.received == [(b"a", b"p" * 200_000)]
        assert other.kept[0].payload is not None
        assert not other.kept[0].payload.readonly
        made.until(lambda: one.done == [b"a"])
