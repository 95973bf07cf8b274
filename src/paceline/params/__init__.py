"""What is shared: the flat parameter space of a model, which server holds which part of it, and how it is updated.

What is named here needs no torch; `updater` and `store` do, and are imported by those who hold tensors.
"""

from paceline.params.optimizer import Group, Optimizer, OptimizerError, optimizer_from
from paceline.params.schedule import Schedule, ScheduleError
from paceline.params.slicing import Move, Slice, Slicing, by_key, elastic
from paceline.params.space import ParameterError, Space, Tensor

__all__ = [
    "Group",
    "Move",
    "Optimizer",
    "OptimizerError",
    "ParameterError",
    "Schedule",
    "ScheduleError",
    "Slice",
    "Slicing",
    "Space",
    "Tensor",
    "by_key",
    "elastic",
    "optimizer_from",
]
