"""When workers wait for each other: the pure core.

`Shard` is the machine; `parse` makes the model that it works under; events go in, commands come out. Nothing in here
knows a tensor, a socket or a clock.
"""

from paceline.sync.commands import Advance, Apply, Command, Drop, Grant, Hold, Reason, SetTimer
from paceline.sync.errors import EventError, InvariantViolated, ModelError, PlanError, SyncError
from paceline.sync.events import Event, Joined, Left, Pulled, Pushed, SetModel, Stop, TimerFired
from paceline.sync.expression import MODELS, parse, signature, to_table
from paceline.sync.models.base import Holding, Model
from paceline.sync.shard import Counters, Shard
from paceline.sync.view import View
from paceline.sync.zipline import Plan, full_grid_scan, grid_scan, predict, zipline

__all__ = [
    "MODELS",
    "Advance",
    "Apply",
    "Command",
    "Counters",
    "Drop",
    "Event",
    "EventError",
    "Grant",
    "Hold",
    "Holding",
    "InvariantViolated",
    "Joined",
    "Left",
    "Model",
    "ModelError",
    "Plan",
    "PlanError",
    "Pulled",
    "Pushed",
    "Reason",
    "SetModel",
    "SetTimer",
    "Shard",
    "Stop",
    "SyncError",
    "TimerFired",
    "View",
    "full_grid_scan",
    "grid_scan",
    "parse",
    "predict",
    "signature",
    "to_table",
    "zipline",
]
