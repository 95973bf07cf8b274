"""A real run as a timeline, from the trace of one of its servers: who computed and who waited, when and for whom.

It is seen from the server: a worker computes from when its parameters are granted until its gradient has come.
"""

from __future__ import annotations

from statistics import median

from paceline.observe.trace import Recording, TraceError
from paceline.sim.record import Lane, Recorder, Timeline
from paceline.sync import Apply, Drop, Grant, Hold, Pushed


def timeline(recording: Recording, seconds: float | None = None) -> Timeline:
    """The first shard of the trace, from the first grant on, as a whole or so many seconds of it."""
    setup = recording.shards[0]
    seen = Seen()
    for record in recording:
        if record.shard != setup.index:
            continue
        if seconds is not None and seen.began is not None and record.now - seen.began > seconds:
            break
        if isinstance(record.event, Pushed):
            seen.pushed(record.event.worker, record.now)
        for command in record.commands:
            seen.decided(command, record.now)
    if seen.began is None:
        raise TraceError(f"{recording.path}: nobody was given any parameters, so there is nothing to show")
    return seen.timeline(str(setup.model), seconds or seen.last)


class Seen:
    """What has been read so far. Times count from the first grant."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.last = 0.0
        self._recorders: dict[int, Recorder] = {}
        self._held = self._dropped = self._applied = self._stale = self._rounds = 0

    def pushed(self, worker: int, now: float) -> None:
        if self.began is not None:
            self._at(worker).waits(self._since(now), done=True)

    def decided(self, command: object, now: float) -> None:
        match command:
            case Grant(worker=worker):
                self.began = now if self.began is None else self.began
                recorder, at = self._at(worker), self._since(now)
                recorder.wait_ended(recorder.answered(0, command, ()), at)
                recorder.computes(command.next, at)
                self._rounds = max(self._rounds, command.clock)
            case Hold(worker=worker):
                self._held += 1
                self._at(worker).held(0, command)
            case Apply():
                self._applied += 1
                self._stale += command.staleness
            case Drop(worker=worker, answer=None):
                self._dropped += 1
                self._at(worker).dropped(command.iteration, 1)

    def timeline(self, model: str, seconds: float) -> Timeline:
        lanes = [_lane(self._recorders[worker], seconds) for worker in sorted(self._recorders)]
        return Timeline(
            model=model,
            seconds=seconds,
            shards=1,
            iterations=sum(lane.iterations for lane in lanes),
            used=sum(lane.used for lane in lanes),
            computing=sum(lane.computing for lane in lanes) / len(lanes),
            held_pulls=self._held,
            dropped=self._dropped,
            staleness=self._stale / self._applied if self._applied else 0.0,
            rounds=self._rounds,
            lanes=lanes,
        )

    def _at(self, worker: int) -> Recorder:
        if worker not in self._recorders:
            self._recorders[worker] = Recorder(worker)
        return self._recorders[worker]

    def _since(self, now: float) -> float:
        assert self.began is not None
        self.last = now - self.began
        return self.last


def _lane(recorder: Recorder, seconds: float) -> Lane:
    lane = recorder.lane(0.0, seconds, lambda _: ())
    times = [span.seconds for span in lane.spans if span.kind == "computing"]
    lane.pace = round(median(times), 3) if times else 0.0
    return lane
