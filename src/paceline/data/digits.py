"""Handwritten digits, 8x8: the 1 797 that come with scikit-learn, so they are there wherever Paceline is.

They are the test set of the UCI data set "Optical recognition of handwritten digits" (Alpaydin and Kaynak 1998). The
file is read where scikit-learn has it: importing scikit-learn would take each worker a second.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import TensorDataset

from paceline.data.source import Source, files

ROWS, PIXELS = 1797, 64
FILE = "digits.csv.gz"
EVERY = 5  # this one goes into the test set


def _scikit_learn() -> tuple[str, ...]:
    spec = importlib.util.find_spec("sklearn")
    return tuple(f"{place}/datasets/data" for place in spec.submodule_search_locations or ()) if spec else ()


SOURCE = Source(
    name="digits",
    folder="digits",
    advice=f"Install scikit-learn, or put its sklearn/datasets/data/{FILE} into ~/.cache/paceline/digits.",
    others=_scikit_learn(),
)


def load(folder: str | Path | None = None) -> tuple[TensorDataset, TensorDataset]:
    """The training and the test set, four fifths and one: images of shape (1, 8, 8), and digits.

    The test set takes every fifth, so that both have something of every part of the file.
    """
    [path] = SOURCE.find(folder, look)
    content = SOURCE.read(path, limit=10 * ROWS * PIXELS)
    try:
        lines = content.decode("ascii").splitlines()
        rows = np.loadtxt(lines, np.int64, delimiter=",") if len(lines) == ROWS else np.empty((len(lines), 0))
    except ValueError as error:
        raise SOURCE.broken(path, str(error)) from error
    if rows.shape != (ROWS, PIXELS + 1):
        raise SOURCE.broken(path, f"it does not have {ROWS} lines of {PIXELS + 1} numbers")
    pixels, labels = torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, -1].copy())
    if pixels.min() < 0 or pixels.max() > 16 or labels.min() < 0 or labels.max() > 9:
        raise SOURCE.broken(path, "it has pixels that are not 0 to 16, or digits that are not 0 to 9")
    x = pixels.to(torch.float32).div_(8).sub_(1).view(-1, 1, 8, 8)
    test = torch.arange(ROWS) % EVERY == EVERY - 1
    return TensorDataset(x[~test], labels[~test]), TensorDataset(x[test], labels[test])


def look(folder: Path) -> list[Path] | None:
    """The file, if it is there."""
    return files(folder, FILE)
