"""What people look at: the terminal's view of who waits, and for whom, and traces that replay."""

from paceline.observe.replay import Difference, Replay, replay
from paceline.observe.timeline import Compared, draw, words
from paceline.observe.trace import Recording, ShardSetup, Trace, TraceError, read

__all__ = [
    "Compared",
    "Difference",
    "Recording",
    "Replay",
    "ShardSetup",
    "Trace",
    "TraceError",
    "draw",
    "read",
    "replay",
    "words",
]
