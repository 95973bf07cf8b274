"""Somebody who changes a run from outside and does not take part."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

from paceline.nodes import messages as m
from paceline.nodes.control import Control
from paceline.nodes.errors import WrongRequest
from paceline.nodes.job import Job, Network
from paceline.wire import Address

WITHIN = 10.0  # seconds for all servers to answer


def change(
    job: Job,
    network: Network,
    coordinator: Address,
    sync: str,
    shard: int | None = None,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Put another synchronization model in force, on all shards of a run or on one; when it returns, it is."""
    control = Control(job, network, clock, lambda: None)
    try:
        control.start(coordinator, m.OperatorHello(os.getpid()), m.Change(sync, shard))
        error = control.wait_for(m.Changed, WITHIN).error
    finally:
        control.close()
    if error is not None:
        raise WrongRequest(error)
