"""The nodes of a run, coordinator, servers and workers: each drives a pure machine over a wire."""

from paceline.nodes.coordinator import Coordinator
from paceline.nodes.errors import (
    Expelled,
    NodeError,
    NotFinite,
    PeerLost,
    ScriptFailed,
    StartFailed,
    WaitedTooLong,
    WrongModel,
    WrongRequest,
    error_of,
)
from paceline.nodes.handle import Handle
from paceline.nodes.job import DDP, Job
from paceline.nodes.local_worker import LocalWorker
from paceline.nodes.server import Server
from paceline.nodes.snapshot import Snapshot, Taking
from paceline.nodes.state_server import StateServer
from paceline.nodes.traffic import Traffic
from paceline.nodes.worker import Worker

__all__ = [
    "DDP",
    "Coordinator",
    "Expelled",
    "Handle",
    "Job",
    "LocalWorker",
    "NodeError",
    "NotFinite",
    "PeerLost",
    "ScriptFailed",
    "Server",
    "Snapshot",
    "StartFailed",
    "StateServer",
    "Taking",
    "Traffic",
    "WaitedTooLong",
    "Worker",
    "WrongModel",
    "WrongRequest",
    "error_of",
]
