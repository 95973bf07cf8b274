"""The queue before a socket, against a plain row of bytes."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.outbox import MOST_BUFFERS, MOST_BYTES, Outbox
from tests.effort import cases


@given(st.data())
@settings(max_examples=cases(200), deadline=None)
def test_bytes_leave_in_order_and_everyone_is_told_once(data: st.DataObject) -> None:
    outbox, row, written = Outbox(), b"", b""
    promised: list[int] = []
    told: list[int] = []
    for n in range(data.draw(st.integers(1, 40))):
        if data.draw(st.booleans()):
            content = bytes([n]) * data.draw(st.integers(0, 300))
            outbox.put(memoryview(content), len(content), lambda n=n: told.append(n))  # type: ignore[misc]
            row += content
            promised.append(len(row))
        else:
            ready = b"".join(outbox.batch()[0])
            count = data.draw(st.integers(0, len(ready)))
            written += ready[:count]
            for done in outbox.sent(count):
                done()
        assert written == row[: len(written)]
        assert outbox.queued == len(row) - len(written)
        assert bool(outbox) >= bool(outbox.queued)
        assert outbox.held >= outbox.queued
        if not outbox:
            assert outbox.held == 0
    still = [end for end in promised if end > len(written)]
    assert len(told) <= len(promised) - len(still)
    for done in outbox.drop():
        done()
    assert told == sorted(told)
    assert len(told) == len(promised)
    assert (outbox.queued, outbox.held, bool(outbox)) == (0, 0, False)


def test_one_call_is_given_a_bounded_amount() -> None:
    outbox = Outbox()
    for _ in range(100):
        outbox.put(memoryview(b"x"), 1)
    assert len(outbox.batch()[0]) == MOST_BUFFERS
    outbox.drop()
    outbox.put(memoryview(bytes(3 * MOST_BYTES)), 0)
    outbox.put(memoryview(b"x"), 1)
    assert [buffer.nbytes for buffer in outbox.batch()[0]] == [MOST_BYTES]


def test_large_payloads_are_not_held() -> None:
    outbox = Outbox()
    payload = memoryview(bytearray(50_000_000))
    outbox.put(payload, 0)
    assert outbox.held < 1000
    assert outbox.batch()[0][0].obj is payload.obj


def batch(outbox: Outbox) -> tuple[list[bytes], int | None]:
    buffers, descriptor = outbox.batch()
    return [bytes(buffer) for buffer in buffers], descriptor


def test_a_descriptor_goes_with_its_own_frame_and_is_closed_once() -> None:
    outbox = Outbox()
    read, write = os.pipe2(os.O_NONBLOCK)
    outbox.put(memoryview(b"before"), 6)
    outbox.put(memoryview(b"frame"), 5, None, write)
    outbox.put(memoryview(b"after"), 5)
    assert batch(outbox) == ([b"before"], None)
    outbox.sent(6)
    assert batch(outbox) == ([b"frame"], write)
    outbox.sent(2)
    assert os.read(read, 1) == b""
    assert batch(outbox) == ([b"ame", b"after"], None)
    outbox.drop()
    os.close(read)


def test_descriptors_that_never_went_are_closed() -> None:
    outbox = Outbox()
    read, write = os.pipe2(os.O_NONBLOCK)
    outbox.put(memoryview(b"frame"), 5, None, write)
    outbox.drop()
    assert os.read(read, 1) == b""
    os.close(read)
