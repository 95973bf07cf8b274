"""How long shared memory stays mapped, on both sides, and what may be shared."""

from __future__ import annotations

import gc

import pytest

from paceline.wire import Incoming, Limits, Segment, SegmentError
from paceline.wire.frames import PRELUDE_BYTES
from paceline.wire.shared_memory import SharedMemoryChannel
from tests.wires import End, wires


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


def frames_sent(end: End) -> list[int]:
    """From now on, the sizes of what one end hands to the kernel, call by call."""
    channel, sizes = end.channel, []
    assert isinstance(channel, SharedMemoryChannel)
    hand_over = channel._hand_over

    def counted(frame: bytes, payload: memoryview | None) -> int:
        sizes.append(len(frame))
        return hand_over(frame, payload)

    channel._hand_over = counted  # type: ignore[method-assign]
    return sizes


def test_a_release_goes_along_with_the_answer() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = made.share(one, 200_000)
        sizes = frames_sent(other)

        def answer(incoming: Incoming) -> None:
            incoming.release()
            other.send(b"an answer")

        other.on_message = answer
        for n in range(3):
            one.send(b"%d" % n, segment.part(0, 100_000))
            made.until(lambda: len(one.received) == len(one.done) == n + 1)  # noqa: B023
        assert sizes == [2 * PRELUDE_BYTES + len(b"an answer")] * 3


def test_releases_without_an_answer_go_together_when_the_turn_ends() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = made.share(one, 300_000)
        other.keep = True
        for n in range(3):
            one.send(b"%d" % n, segment.part(n, n + 100_000))
        made.until(lambda: len(other.kept) == 3)
        sizes = frames_sent(other)
        for incoming in other.kept:
            incoming.release()
        assert not sizes
        made.until(lambda: len(one.done) == 3)
        assert sizes == [3 * PRELUDE_BYTES]


def test_what_was_released_before_the_end_is_told() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = made.share(one, 200_000)
        other.keep = True
        one.send(b"a", segment.view)
        made.until(lambda: bool(other.kept))
        other.kept[0].release()
        other.channel.close("over")
        made.until(lambda: bool(one.done) and bool(one.errors))
