"""What is shared: the flat parameter space of a model, and which server holds which part of it."""

from paceline.params.slicing import Move, Slice, Slicing, by_key, elastic
from paceline.params.space import ParameterError, Space, Tensor

__all__ = ["Move", "ParameterError", "Slice", "Slicing", "Space", "Tensor", "by_key", "elastic"]
