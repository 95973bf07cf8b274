"""The frame parser against a naive one, on good streams and bad, cut in every way."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.errors import FrameError
from paceline.wire.frames import (
    BARE,
    BUFFER,
    GOODBYE,
    INLINE,
    MAGIC,
    PRELUDE,
    PRELUDE_BYTES,
    REFERENCE,
    RELEASE,
    Frame,
    Reader,
    as_bytes,
    prelude,
)
from tests.effort import cases

TABLE = {BARE: (300, 0), INLINE: (300, 200_000), RELEASE: (0, 1 << 63), GOODBYE: (100, 0)}

frames = st.one_of(
    st.builds(lambda header: prelude(BARE, len(header), 0) + header, st.binary(max_size=300)),
    st.builds(
        lambda header, payload: prelude(INLINE, len(header), len(payload)) + header + payload,
        st.binary(max_size=300),
        st.one_of(st.binary(max_size=500), st.integers(0, 200_000).map(lambda size: bytes([size % 251]) * size)),
    ),
    st.builds(lambda number: prelude(RELEASE, 0, number), st.integers(0, 1 << 63)),
)
rubbish = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.builds(prelude, st.integers(0, 255), st.integers(0, 400), st.integers(0, 300_000)),
    st.builds(
        PRELUDE.pack,
        st.sampled_from([MAGIC, 0]),
        st.sampled_from([BARE, INLINE]),
        st.integers(0, 1),
        st.integers(0, 400),
        st.integers(0, 300_000),
    ),
)


def naive(stream: bytes) -> tuple[list[tuple[int, bytes, int, bytes | None]], bool]:
    """All whole frames, and whether the stream is refused after them. As slow and plain as can be."""
    found: list[tuple[int, bytes, int, bytes | None]] = []
    while len(stream) >= PRELUDE_BYTES:
        magic, kind, zero, length, size = PRELUDE.unpack(stream[:PRELUDE_BYTES])
        if magic != MAGIC or zero != 0 or kind not in TABLE:
            return found, True
        most_header, most_size = TABLE[kind]
        if length > most_header or size > most_size:
            return found, True
        header = stream[PRELUDE_BYTES:][:length]
        payload = stream[PRELUDE_BYTES + length :][:size] if kind == INLINE else None
        whole = PRELUDE_BYTES + length + (0 if payload is None else size)
        if len(stream) < whole:
            return found, False
        found.append((kind, header, size, payload))
        stream = stream[whole:]
    return found, False


class Feed:
    """Gives a reader the bytes of a stream in pieces of these lengths, over and over."""

    def __init__(self, stream: bytes, pieces: list[int]) -> None:
        self.stream = stream
        self.pieces = pieces
        self.turn = 0

    def receive(self, room: memoryview) -> int:
        assert len(room) > 0
        count = min(len(room), self.pieces[self.turn % len(self.pieces)], len(self.stream))
        self.turn += 1
        room[:count] = self.stream[:count]
        self.stream = self.stream[count:]
        return count


def parse(
    stream: bytes, pieces: list[int], refusals: list[bool]
) -> tuple[list[tuple[int, bytes, int, bytes | None]], bool]:
    """The same by the real reader, with a sink that has no room whenever `refusals` say so."""
    reader, feed, asked = Reader(TABLE), Feed(stream, pieces), iter(refusals)
    reader.sink = lambda header, size: None if next(asked, False) else memoryview(bytearray(size))
    found: list[tuple[int, bytes, int, bytes | None]] = []
    try:
        while True:
            frame: Frame | None = reader.next()
            while frame is not None:
                kind, header, size, payload = frame
                found.append((kind, header, size, None if payload is None else bytes(payload)))
                frame = reader.next()
            if reader.blocked:
                continue
            if not feed.stream:
                return found, False
            reader.fill(feed.receive)
    except FrameError:
        return found, True


@given(
    stream=st.lists(st.one_of(frames, frames, frames, rubbish), max_size=8).map(b"".join),
    pieces=st.lists(st.one_of(st.integers(1, 40), st.integers(1, 2 * BUFFER)), min_size=1, max_size=8),
    refusals=st.lists(st.booleans(), max_size=10),
)
@settings(max_examples=cases(400), deadline=None)
def test_every_stream_is_read_as_the_naive_parser_reads_it(
    stream: bytes, pieces: list[int], refusals: list[bool]
) -> None:
    assert parse(stream, pieces, refusals) == naive(stream)


@given(stream=st.lists(frames, min_size=1, max_size=5), cut=st.integers(0, 1 << 20))
@settings(max_examples=cases(100), deadline=None)
def test_it_knows_whether_it_is_within_a_frame(stream: list[bytes], cut: int) -> None:
    whole = b"".join(stream)
    part = whole[: cut % (len(whole) + 1)]
    reader, feed = Reader(TABLE), Feed(part, [BUFFER])
    while feed.stream:
        reader.fill(feed.receive)
        while reader.next() is not None:
            pass
    ends = {sum(len(frame) for frame in stream[:n]) for n in range(len(stream) + 1)}
    assert reader.empty == (len(part) in ends)


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (PRELUDE.pack(0x4547, BARE, 0, 0, 0), "not our protocol"),
        (PRELUDE.pack(MAGIC, BARE, 1, 0, 0), "not our protocol"),
        (prelude(REFERENCE, 0, 0), "kind 3"),
        (prelude(BARE, 301, 0), "301"),
        (prelude(BARE, 0, 1), "1 bytes"),
        (prelude(INLINE, 0, 200_001), "200001"),
        (prelude(INLINE, 0, (1 << 64) - 1), "18446744073709551615"),
    ],
)
def test_what_may_not_be_is_refused_on_its_first_bytes_and_named(bad: bytes, what: str) -> None:
    reader = Reader(TABLE)
    asked: list[int] = []
    reader.sink = lambda header, size: asked.append(size)
    reader.fill(Feed(bad, [BUFFER]).receive)
    with pytest.raises(FrameError, match=what):
        reader.next()
    assert not asked


def test_a_declared_size_allocates_nothing() -> None:
    reader = Reader({INLINE: (300, 1 << 40)})
    reader.sink = lambda header, size: None
    tracemalloc.start()
    reader.fill(Feed(prelude(INLINE, 0, 1 << 40), [BUFFER]).receive)
    assert reader.next() is None
    assert reader.blocked
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.parametrize("wrong", [memoryview(bytearray(9)), memoryview(bytearray(11)), memoryview(bytes(10))])
def test_a_sink_that_gives_the_wrong_memory_is_a_mistake_of_ours(wrong: memoryview) -> None:
    reader = Reader(TABLE)
    reader.sink = lambda header, size: wrong
    reader.fill(Feed(prelude(INLINE, 0, 10) + bytes(10), [BUFFER]).receive)
    with pytest.raises(ValueError, match="payload of 10"):
        reader.next()


def test_arrays_of_any_shape_are_rows_of_bytes() -> None:
    assert as_bytes(memoryview(bytes(24)).cast("d")).nbytes == 24
    assert as_bytes(memoryview(bytes(24)).cast("B", [2, 3, 4])).nbytes == 24
    assert as_bytes(memoryview(b"").cast("d")).nbytes == 0
