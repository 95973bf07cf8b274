"""What a training script imports."""

from paceline.training.checkpoint import Loaded, load_checkpoint, save_checkpoint
from paceline.training.data import shard
from paceline.training.optimizer import Optimizer
from paceline.training.parts import ShardError
from paceline.training.reporting import ReportError, report, seed
from paceline.training.saving import CheckpointError

__all__ = [
    "CheckpointError",
    "Loaded",
    "Optimizer",
    "ReportError",
    "ShardError",
    "load_checkpoint",
    "report",
    "save_checkpoint",
    "seed",
    "shard",
]
