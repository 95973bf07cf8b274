"""What the simulator predicts for real workers, beside what they did.

Four uneven workers, processes with a real server between them, train for some seconds under a model. How long each of
their iterations took is read from the server's trace and fed into the simulator; what it must find by itself is who
waits for whom, and so how many iterations there are in the same time and how many pulls are held.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from msgspec import Struct

from paceline.observe import read
from paceline.observe.recorded import timeline
from paceline.sim.cluster import measured
from paceline.sim.timeline import simulate_cluster

if TYPE_CHECKING:
    from paceline.launch.node import Post

MODELS = ("bsp", "ssp(s=3)", "pssp(s=3, c=0.5)", "elastic_bsp(R=15)", "asp")
PACES = (0.020, 0.024, 0.030, 0.080)
LAST = 0.9  # the share of the time that is compared: nobody has left yet


class VersusRow(Struct, frozen=True):
    """One model. Milliseconds per iteration are of the time over all workers' iterations; `off` is a share."""

    model: str
    ms_per_iteration: float
    predicted_ms: float
    off: float
    held_pulls: int
    predicted_held: int
    held_off: float


def measure(models: Sequence[str], seconds: float, seed: int = 0) -> Iterator[VersusRow]:
    """For each model, a run and its prediction."""
    from paceline.launch.local import LocalCluster
    from paceline.nodes import Job

    for model in models:
        job = Job(workers=len(PACES), servers=1, sync=model, seed=seed)
        with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
            traces = Path(folder)
            with LocalCluster(job, f"{__name__}:train", {"seconds": seconds}, traces=traces) as cluster:
                for ended in cluster.wait(seconds + job.start_within).values():
                    if ended.error is not None:
                        raise ended.error
            real = timeline(read(traces / "server-0.trace"), LAST * seconds)
        virtual = simulate_cluster(model, measured(real, seed), LAST * seconds)
        took, predicted = (1e3 * LAST * seconds / run.iterations for run in (real, virtual))
        yield VersusRow(
            model=model,
            ms_per_iteration=took,
            predicted_ms=predicted,
            off=predicted / took - 1,
            held_pulls=real.held_pulls,
            predicted_held=virtual.held_pulls,
            held_off=(virtual.held_pulls - real.held_pulls) / max(real.held_pulls, 1),
        )


def train(post: Post) -> None:
    """What every worker does: computing is standing still, so that two cores can hold any number of them."""
    with post.worker({"values": (1000,)}) as worker:
        from torch import zeros

        worker.start(post.coordinator, zeros(1000))
        end = monotonic() + post.arguments["seconds"]
        while monotonic() < end:
            sleep(PACES[post.number])
            worker.step()
