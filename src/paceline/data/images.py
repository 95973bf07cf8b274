"""Images as a network takes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.utils.data import TensorDataset


def images(pixels: np.ndarray, labels: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> TensorDataset:
    """Bytes of shape (images, channels, rows, columns) as floats around 0, by the mean and deviation of each channel.

    The two are shares of 255, and those of the training set, for the test set too.
    """
    channels = (1, len(mean), 1, 1)
    values = torch.from_numpy(pixels.astype(np.float32, order="C")).div_(255)
    values.sub_(torch.tensor(mean).view(channels)).div_(torch.tensor(std).view(channels))
    return TensorDataset(values, torch.from_numpy(labels.astype(np.int64)))
