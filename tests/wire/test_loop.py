"""The loop: timers, wake-ups from other threads, deadlines."""

from __future__ import annotations

import threading
import time

import pytest

from paceline.wire import Loop, Timeout
from tests.wires import PATIENCE


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_timers_ring_at_their_time_in_order_unless_cancelled() -> None:
    clock, rang = Clock(), list[str]()
    with Loop(clock=clock) as loop:
        loop.call_at(103.0, lambda: rang.append("c"))
        loop.call_at(101.0, lambda: rang.append("a"))
        loop.call_at(101.0, lambda: rang.append("b"))
        cancelled = loop.call_at(101.0, lambda: rang.append("never"))
        cancelled.cancel()
        loop.run_once(0)
        assert rang == []
        clock.now = 102.0
        loop.run_once(0)
        assert rang == ["a", "b"]
        clock.now = 104.0
        loop.run_once(0)
        assert rang == ["a", "b", "c"]


def test_a_timer_may_cancel_another_and_set_itself_again() -> None:
    clock, rang = Clock(), list[str]()
    with Loop(clock=clock) as loop:

        def again() -> None:
            rang.append("again")
            second.cancel()
            loop.call_at(clock.now, again)

        loop.call_at(101.0, again)
        second = loop.call_at(101.0, lambda: rang.append("never"))
        clock.now = 101.0
        loop.run_once(0)
        assert rang == ["again"]
        loop.run_once(0)
        assert rang == ["again", "again"]


def test_a_wait_ends_with_the_next_timer() -> None:
    rang: list[int] = []
    with Loop() as loop:
        loop.call_at(loop.clock() + 0.02, lambda: rang.append(1))
        loop.run(lambda: bool(rang), loop.clock() + PATIENCE)


def test_after_a_brief_wait_it_stays_awake_but_not_for_long() -> None:
    with Loop(awake=True) as loop:
        for _ in range(2):  # the first time that it sleeps costs more
            loop.wake()
            loop.run_once(PATIENCE)
            busy, begun = time.process_time(), time.monotonic()
            loop.run_once(0.5)
            busy, waited = time.process_time() - busy, time.monotonic() - begun
    assert busy < waited / 5


def test_cancelled_timers_do_not_pile_up() -> None:
    clock = Clock()
    with Loop(clock=clock) as loop:
        for n in range(10_000):
            loop.call_at(1_000_000.0 + n, lambda: None).cancel()
            loop.call_at(clock.now, lambda: None)
            loop.run_once(0)
        assert len(loop._timers) < 200


def test_what_is_to_be_called_soon_is_called_before_any_wait_and_in_order() -> None:
    called: list[int] = []
    with Loop() as loop:
        loop.call_soon(lambda: called.append(1))
        loop.call_soon(lambda: loop.call_soon(lambda: called.append(3)))
        loop.call_soon(lambda: called.append(2))
        loop.run_once(PATIENCE)
        assert called == [1, 2]
        loop.run_once(PATIENCE)
        assert called == [1, 2, 3]


def test_another_thread_can_wake_it() -> None:
    with Loop() as loop:
        told: list[int] = []

        def tell() -> None:
            told.append(1)
            for _ in range(100_000):
                loop.wake()

        thread = threading.Thread(target=tell)
        thread.start()
        loop.run(lambda: bool(told), loop.clock() + PATIENCE)
        thread.join(PATIENCE)


def test_a_deadline_ends_the_wait_with_an_error_that_says_for_what() -> None:
    with Loop() as loop, pytest.raises(Timeout, match="the coordinator did not come in time"):
        loop.run(lambda: False, loop.clock() + 0.01, "the coordinator")


def test_a_condition_that_holds_needs_no_time() -> None:
    with Loop() as loop:
        loop.run(lambda: True, loop.clock() - 1)


def test_an_error_of_the_node_itself_is_not_swallowed() -> None:
    with Loop() as loop:
        loop.call_soon(lambda: 1 / 0)  # type: ignore[arg-type]
        with pytest.raises(ZeroDivisionError):
            loop.run_once(0)


def test_closing_calls_what_is_still_to_be_called() -> None:
    called: list[int] = []
    loop = Loop()
    loop.call_soon(lambda: called.append(1))
    loop.close()
    loop.wake()
    assert called == [1]
