"""The same uneven workers under several models, until each has learnt digits to the same accuracy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from paceline.launch.run import ScriptRun, Summary, Update, Wrote
from paceline.nodes import Job, NodeError
from paceline.observe.recorded import timeline
from paceline.observe.trace import read
from paceline.sim.record import Timeline
from paceline.slowness import Slowness

SCRIPT = Path(__file__).parent / "digits.py"
Watch = Callable[[Update], None]


class Learnt(Struct, frozen=True):
    """One model: how long it took, and how accuracy grew (seconds, share of right answers)."""

    sync: str
    seconds: float
    accuracy: list[tuple[float, float]]
    summary: Summary

    def timeline(self, seconds: float) -> Timeline:
        """Where the first so many seconds went, as the server saw them."""
        return timeline(read(Path(self.summary.folder) / "server-0.trace"), seconds)


def learn(job: Job, target: float, slow: tuple[Slowness, ...], folder: Path, watch: Watch) -> Learnt:
    """Train until worker 0 sees the target reached."""
    accuracy: list[tuple[float, float]] = []
    with ScriptRun(job, SCRIPT, [str(target)], folder, slow=slow) as run:
        for update in run.updates():
            watch(update)
            if isinstance(update, Wrote) and update.line.startswith("accuracy"):
                _, right, _, seconds, _ = update.line.split()
                accuracy.append((float(seconds), float(right)))
                if float(right) >= target:
                    run.end()
    if run.error is not None or not accuracy:
        raise NodeError(f"the demo could not be run under {job.sync}: {run.error or 'nobody has learnt anything'}")
    return Learnt(job.sync, accuracy[-1][0], accuracy, run.summary())
