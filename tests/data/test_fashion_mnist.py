"""IDX files are read as they were written, and whatever else is an error of one type."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.data import DataError, fashion_mnist
from tests.data.here import here

TRAIN, TEST = 30, 20
TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = fashion_mnist.SHAPES


def idx(values: np.ndarray) -> bytes:
    return bytes((0, 0, 8, values.ndim)) + np.array(values.shape, ">u4").tobytes() + values.tobytes()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The four files, packed, with fewer images."""
    random = np.random.default_rng(1)
    arrays = {
        TRAIN_IMAGES: random.integers(0, 256, (TRAIN, 28, 28), np.uint8),
        TRAIN_LABELS: random.integers(0, 10, TRAIN, np.uint8),
        TEST_IMAGES: random.integers(0, 256, (TEST, 28, 28), np.uint8),
        TEST_LABELS: random.integers(0, 10, TEST, np.uint8),
    }
    for name, array in arrays.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    monkeypatch.setattr(fashion_mnist, "SHAPES", {name: array.shape for name, array in arrays.items()})
    return arrays


@pytest.mark.parametrize("packed", [True, False])
def test_images_and_classes_are_read(packed: bool, written: dict[str, np.ndarray], tmp_path: Path) -> None:
    if not packed:
        for name in written:
            (tmp_path / name).write_bytes(gzip.decompress((tmp_path / f"{name}.gz").read_bytes()))
            (tmp_path / f"{name}.gz").unlink()
    parts = fashion_mnist.load(tmp_path)
    for part, images, labels in zip(parts, (TRAIN_IMAGES, TEST_IMAGES), (TRAIN_LABELS, TEST_LABELS), strict=True):
        x, y = part.tensors
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        assert x.shape == (len(written[images]), 1, 28, 28)
        bytes_again = (x * fashion_mnist.STD[0] + fashion_mnist.MEAN[0]) * 255
        assert np.array_equal(bytes_again.round().numpy().astype(np.uint8)[:, 0], written[images])
        assert y.tolist() == written[labels].tolist()


@pytest.mark.parametrize("name", fashion_mnist.SHAPES)
@pytest.mark.parametrize("harm", ["cut short", "longer", "another head", "not packed", "empty", "packed, cut short"])
def test_a_damaged_file_is_named(name: str, harm: str, written: dict[str, np.ndarray], tmp_path: Path) -> None:
    path = tmp_path / f"{name}.gz"
    whole = idx(written[name])
    path.write_bytes(
        {
            "cut short": gzip.compress(whole[:-1]),
            "longer": gzip.compress(whole + b"\0"),
            "another head": gzip.compress(whole[:3] + b"\x02" + whole[4:]),
            "not packed": whole,
            "empty": b"",
            "packed, cut short": gzip.compress(whole)[:-10],
        }[harm]
    )
    with pytest.raises(
        DataError, match=rf"{name}\.gz cannot be used as a file of Fashion-MNIST.*dataset-fashion-mnist"
    ):
        fashion_mnist.load(tmp_path)


@pytest.mark.parametrize("name", [TRAIN_LABELS, TEST_LABELS])
def test_a_class_that_there_is_not_is_refused(name: str, written: dict[str, np.ndarray], tmp_path: Path) -> None:
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(np.full_like(written[name], 10))))
    with pytest.raises(DataError, match=rf"{name}\.gz .* it has a class 10, of 10"):
        fashion_mnist.load(tmp_path)


def test_a_folder_that_lacks_a_file_is_not_taken(written: dict[str, np.ndarray], tmp_path: Path) -> None:
    (tmp_path / f"{TEST_LABELS}.gz").unlink()
    with pytest.raises(DataError, match="Fashion-MNIST is not here"):
        fashion_mnist.load(tmp_path)


def test_the_real_images() -> None:
    train, test = fashion_mnist.load(here(fashion_mnist))
    (x, y), (_, test_y) = train.tensors, test.tensors
    assert y.bincount().tolist() == [6000] * 10
    assert test_y.bincount().tolist() == [1000] * 10
    assert y[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert abs(float(x.mean())) < 0.001
    assert abs(float(x.std()) - 1) < 0.001
