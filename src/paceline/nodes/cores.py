"""What nodes make of the cores of the machine that they are on."""

from __future__ import annotations

import os

from paceline.nodes.job import Job
from paceline.params.crew import Crew

THREADS = 4  # at most, for sums and steps: one does not fill the bandwidth of the memory


def crew_here() -> Crew:
    """The threads that a server sums and steps with, on the cores that it may use."""
    return Crew(min(THREADS, len(os.sched_getaffinity(0))))


def may_stay_awake(job: Job) -> bool:
    """Would all nodes but one have a core of this machine each? Then those that wait may."""
    return job.workers + job.servers <= (os.cpu_count() or 1) + 1
