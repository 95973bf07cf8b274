"""What a training script imports."""

from paceline.training.checkpoint import Loaded, load_checkpoint, save_checkpoint
from paceline.training.data import shard
from paceline.training.optimizer import Optimizer
from paceline.training.parts import ShardError
from paceline.training.saving import CheckpointError

__all__ = ["CheckpointError", "Loaded", "Optimizer", "ShardError", "load_checkpoint", "save_checkpoint", "shard"]
