"""The digits of scikit-learn, as images."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from paceline.data import DataError, digits


def test_digits_are_those_of_scikit_learn_each_once() -> None:
    from sklearn.datasets import load_digits

    train, test = digits.load()
    (x, y), (test_x, test_y) = train.tensors, test.tensors
    assert (len(y), len(test_y)) == (1438, 359)
    assert x.dtype == test_x.dtype == torch.float32
    assert y.dtype == test_y.dtype == torch.int64
    assert (float(x.min()), float(x.max())) == (-1.0, 1.0)
    assert int(test_y.bincount().min()) > 20
    pixels, labels = load_digits(return_X_y=True)
    for part_x, part_y, rows in ((x, y, np.arange(1797) % 5 != 4), (test_x, test_y, np.arange(1797) % 5 == 4)):
        assert np.array_equal((part_x.numpy() * 8 + 8).reshape(-1, 64), pixels[rows])
        assert np.array_equal(part_y.numpy(), labels[rows])


def test_without_scikit_learn_one_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PACELINE_DATA", raising=False)
    monkeypatch.setattr(digits, "SOURCE", replace(digits.SOURCE, others=()))
    with pytest.raises(DataError, match=rf"digits is not here: looked in {tmp_path}/.* Install scikit-learn"):
        digits.load()


ROW = ",".join(["16"] * 64)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not packed",
        gzip.compress(b""),
        gzip.compress(b"\xff\0"),
        gzip.compress(f"{ROW},9\n".encode() * 1796),
        gzip.compress(f"{ROW},9\n".encode() * 1797)[:-9],
        gzip.compress(f"{ROW}\n".encode() * 1797),
        gzip.compress(f"{ROW},10\n".encode() * 1797),
        gzip.compress(f"-{ROW},9\n".encode() * 1797),
        gzip.compress(f"{ROW},x\n".encode() * 1797),
        gzip.compress(bytes(10_000_000)),
    ],
    ids=["empty", "plain", "nothing", "noise", "few", "cut short", "narrow", "no digit", "no grey", "text", "bomb"],
)
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / digits.FILE).write_bytes(content)
    with pytest.raises(DataError, match=r"digits\.csv\.gz cannot be used as a file of digits"):
        digits.load(tmp_path)
