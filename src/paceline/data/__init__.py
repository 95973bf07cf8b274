"""Real data sets for the examples and comparisons: each is looked for in the usual places, else downloaded and checked.

    from paceline.data import digits

    train, test = digits.load()

`digits`, `fashion_mnist`, `cifar10` and `text` each have a `load` that gives two `TensorDataset`s. `load(folder)` looks
only in that folder and downloads nothing. What cannot be had, or is not what it should be, is a `DataError`.
"""

from paceline.data import cifar10, digits, fashion_mnist, text
from paceline.data.source import DataError

__all__ = ["DataError", "cifar10", "digits", "fashion_mnist", "text"]
