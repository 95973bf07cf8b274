"""Shared memory: what the maker can do, what a reader can, and what a reader must not be made to do."""

from __future__ import annotations

import fcntl
import mmap
import os

import pytest

from paceline.wire import Segment, SegmentError
from paceline.wire.segment import MOST_PARTS, STEADY


def memory_file(size: int, seals: int) -> int:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_reader_sees_what_the_maker_writes_and_cannot_write() -> None:
    segment = Segment(10_000, "test")
    attached = Segment.attached(os.dup(segment.fd), 10_000, "peer")
    segment.view[5_000:5_004] = b"seen"
    assert bytes(attached.view[5_000:5_004]) == b"seen"
    assert attached.view.readonly
    assert not segment.view.readonly
    attached.close()
    segment.close()


def test_nobody_can_shrink_grow_or_write_what_was_handed_over() -> None:
    segment = Segment(10_000, "test")
    handed = os.dup(segment.fd)
    for size in (0, 9_999, 20_000):
        with pytest.raises(PermissionError):
            os.ftruncate(handed, size)
    with pytest.raises(PermissionError):
        mmap.mmap(handed, 10_000, mmap.MAP_SHARED, mmap.PROT_WRITE | mmap.PROT_READ)
    with pytest.raises(PermissionError):
        os.pwrite(handed, b"x", 0)
    segment.view[0] = 1
    os.close(handed)
    segment.close()


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW])
def test_a_segment_that_could_be_cut_under_the_reader_is_refused(seals: int) -> None:
    with pytest.raises(SegmentError, match="seals"):
        Segment.attached(memory_file(4096, seals), 4096, "peer")


@pytest.mark.parametrize("size", [1, 4095, 4097, 1 << 40, 1 << 63, (1 << 64) - 1])
def test_a_segment_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(SegmentError, match=r"peer: .*4096"):
        Segment.attached(memory_file(4096, STEADY), size, "peer")


def test_other_descriptors_are_refused() -> None:
    read, write = os.pipe()
    os.close(write)
    file = os.open("/dev/zero", os.O_RDONLY)
    for fd in (read, file):
        with pytest.raises(SegmentError, match="no memory file"):
            Segment.attached(fd, 4096, "peer")


@pytest.mark.parametrize("size", [0, -1, 1 << 62])
def test_sizes_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(SegmentError, match=str(size)):
        Segment(size, "test")


def test_nothing_is_left_open() -> None:
    before = descriptors()
    segment = Segment(4096, "test")
    for size in (4096, 1):
        try:
            Segment.attached(os.dup(segment.fd), size, "peer").close()
        except SegmentError:
            assert size == 1
    with pytest.raises(SegmentError):
        Segment(1 << 62, "test")
    segment.close()
    segment.close()
    assert descriptors() == before


def test_views_outlive_the_segment() -> None:
    segment = Segment(4096, "test")
    segment.view[0] = 7
    view = segment.view[:10]
    segment.close()
    del segment
    assert view[0] == 7


def test_a_part_is_the_same_view_again_and_known_by_where_it_begins() -> None:
    segment = Segment(10_000, "test")
    part = segment.part(100, 300)
    assert part is segment.part(100, 300)
    assert part is not segment.part(100, 301)
    assert (part.nbytes, segment.start_of(part), segment.start_of(segment.view)) == (200, 100, 0)
    assert segment.start_of(segment.view[100:300]) is None
    assert segment.start_of(Segment(10_000, "another").part(100, 300)) is None


def test_only_few_parts_are_remembered() -> None:
    segment = Segment(10_000, "test")
    part = segment.part(0, 1)
    for stop in range(2, 10 * MOST_PARTS):
        segment.part(0, stop)
    assert segment.start_of(part) is None
    assert segment.part(0, 1) is not part
    assert len(segment._parts) <= MOST_PARTS
    assert len(segment._starts) <= MOST_PARTS + 1


def test_a_part_that_nobody_has_does_not_keep_a_closed_segment_in_memory() -> None:
    segment = Segment(10_000, "a part of it")
    segment.part(5, 10)
    segment.close()
    with open("/proc/self/maps") as maps:
        assert not any("a part of it" in line for line in maps)
