"""What can be wrong with what a caller hands to the core."""

from __future__ import annotations


class SyncError(Exception):
    """The base of every error that `paceline.sync` raises."""


class ModelError(SyncError, ValueError):
    """A synchronization model that does not exist or cannot be as it was asked for."""


class PlanError(SyncError, ValueError):
    """Predicted end times from which no barrier can be planned."""


class EventError(SyncError, ValueError):
    """An event that no shard could ever accept. What a remote worker can cause is answered by `Drop` instead."""


class InvariantViolated(SyncError, AssertionError):
    """The machine has done what it must never do. The message tells the events that led there."""
