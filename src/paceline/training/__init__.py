"""What a training script imports."""

from paceline.training.data import shard
from paceline.training.optimizer import Optimizer
from paceline.training.parts import ShardError

__all__ = ["Optimizer", "ShardError", "shard"]
