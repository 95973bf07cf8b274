"""Tiny Shakespeare in stretches, and nothing else under its name."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from paceline.data import DataError, text
from tests.data.here import here


def decoded(numbers: torch.Tensor) -> str:
    return "".join(text.CHARACTERS[number] for number in numbers.tolist())


def test_a_stretch_is_followed_by_the_next_and_its_target_is_one_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "To be, or not to be: that is the question!\n" * 5
    (tmp_path / "input.txt").write_text(content)
    monkeypatch.setattr(text, "CHECKSUM", f"sha256:{hashlib.sha256(content.encode()).hexdigest()}")
    train, test = text.load(tmp_path, context=8)
    cut = int(len(content) * 0.9)
    for part, whole in ((train, content[:cut]), (test, content[cut:])):
        x, y = part.tensors
        assert x.dtype == y.dtype == torch.int64
        assert x.shape == y.shape == ((len(whole) - 1) // 8, 8)
        assert decoded(x.flatten()) == whole[: x.numel()]
        assert decoded(y.flatten()) == whole[1 : x.numel() + 1]


@pytest.mark.parametrize("content", [b"", b"to be", bytes(text.SIZE), bytes([255]) * text.SIZE])
def test_another_text_is_not_taken_for_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "input.txt").write_bytes(content)
    with pytest.raises(DataError, match=r"input\.txt cannot be used as a file of Tiny Shakespeare: its checksum"):
        text.load(tmp_path)


def test_the_real_text() -> None:
    train, test = text.load(here(text), context=64)
    assert decoded(train.tensors[0][0]).startswith("First Citizen:\nBefore we proceed any further")
    assert (len(train), len(test)) == (15685, 1742)
    assert set(decoded(train.tensors[0].flatten())) == set(text.CHARACTERS)
    assert len(text.CHARACTERS) == 65
