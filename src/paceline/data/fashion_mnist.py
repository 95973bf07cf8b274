"""Fashion-MNIST: 60 000 and 10 000 grey images of clothes, 28x28, in ten classes (Xiao et al. 2017, MIT licence).

Its files are IDX: two zero bytes, the type (8 is unsigned bytes), the number of dimensions, each dimension as four
bytes, most significant first, and the values.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
from torch.utils.data import TensorDataset

from paceline.data.images import images
from paceline.data.source import Download, Source, files

MEAN, STD = [0.2860], [0.3530]
CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
SHAPES = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}
CHECKSUMS = {  # as in the data set's README
    "train-images-idx3-ubyte": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
OFFICIAL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
SOURCE = Source(
    name="Fashion-MNIST",
    folder="fashion-mnist",
    advice="Install Debian's package dataset-fashion-mnist, or put train-images-idx3-ubyte.gz, "
    "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz from "
    "https://github.com/zalandoresearch/fashion-mnist into ~/.cache/paceline/fashion-mnist.",
    others=("/usr/share/datasets/fashion-mnist", "data/FashionMNIST/raw"),
    downloads=tuple(
        Download(f"{OFFICIAL}/{name}.gz", prod(SHAPES[name]) + 1000, checksum) for name, checksum in CHECKSUMS.items()
    ),
)


def load(folder: str | Path | None = None) -> tuple[TensorDataset, TensorDataset]:
    """The training and the test set: images of shape (1, 28, 28), and classes."""
    paths = SOURCE.find(folder, look)
    x, y, test_x, test_y = (_read(path, shape) for path, shape in zip(paths, SHAPES.values(), strict=True))
    for path, labels in ((paths[1], y), (paths[3], test_y)):
        if labels.max() >= len(CLASSES):
            raise SOURCE.broken(path, f"it has a class {labels.max()}, of {len(CLASSES)}")
    return images(x[:, None], y, MEAN, STD), images(test_x[:, None], test_y, MEAN, STD)


def look(folder: Path) -> list[Path] | None:
    """The four files, packed or not, if they are there."""
    return files(folder, *(f"{name}.gz" for name in SHAPES)) or files(folder, *SHAPES)


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    head = bytes((0, 0, 8, len(shape))) + b"".join(size.to_bytes(4, "big") for size in shape)
    content = SOURCE.read(path, len(head) + prod(shape))
    if not content.startswith(head):
        raise SOURCE.broken(path, f"its head is {content[: len(head)].hex()}, not {head.hex()}")
    if len(content) < len(head) + prod(shape):
        raise SOURCE.broken(path, f"it ends after {len(content)} of {len(head) + prod(shape)} bytes")
    return np.frombuffer(content, np.uint8, offset=len(head)).reshape(shape)
