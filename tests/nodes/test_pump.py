"""The thread that drives a worker's loop while the worker computes."""

from __future__ import annotations

import os
from threading import Event, current_thread

import pytest

from paceline.nodes.pump import Pump
from paceline.wire import Loop

SOON = 60.0
WHILE = 0.05  # seconds: much longer than a loop stays awake


def test_it_never_stays_awake_beside_whoever_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a loop that somebody waits for does."""
    awake = []
    monkeypatch.setattr(os, "sched_yield", lambda: awake.append(current_thread()))
    with Loop(awake=True) as loop:
        pump, waited = Pump(loop, lambda: True), Event()
        loop.call_at(loop.clock() + WHILE, waited.set)
        loop._brief = True  # waits have been, so it pays
        pump.leave()
        assert waited.wait(SOON)
        pump.close()
        assert awake == []
        loop._brief = True
        loop.run_once(WHILE)
        assert set(awake) == {current_thread()}
