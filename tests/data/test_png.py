"""PNGs are read as they were written, and whatever else is an error of one type."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.data.png import PngError, rgb
from tests.data.pngs import chunk, png

PIXELS = np.random.default_rng(1).integers(0, 256, (6, 5, 3), np.uint8)
FILE = png(PIXELS, [0, 1, 2, 3, 4, 1])


@given(filters=st.lists(st.integers(0, 4), min_size=1, max_size=8), width=st.integers(1, 6), seed=st.integers(0, 99))
def test_every_mix_of_filters_is_undone(filters: list[int], width: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (len(filters), width, 3), np.uint8)
    assert np.array_equal(rgb(png(pixels, filters), width, len(filters)), pixels)


@given(length=st.integers(0, len(FILE) - 1))
def test_a_file_that_is_cut_short_is_not_read(length: int) -> None:
    with pytest.raises(PngError):
        rgb(FILE[:length], 5, 6)


@given(at=st.integers(0, len(FILE) - 1), bit=st.integers(0, 7))
def test_a_file_with_a_wrong_bit_is_not_read(at: int, bit: int) -> None:
    damaged = bytearray(FILE)
    damaged[at] ^= 1 << bit
    with pytest.raises(PngError):
        rgb(bytes(damaged), 5, 6)


@pytest.mark.parametrize("size", [(6, 5), (5, 7), (1 << 30, 1 << 30)])
def test_another_size_than_was_asked_for_is_not_read(size: tuple[int, int]) -> None:
    with pytest.raises(PngError, match="not an RGB image"):
        rgb(FILE, *size)


def test_more_or_fewer_pixels_than_its_head_says_are_not_read() -> None:
    head_end, data = FILE.index(b"tEXt") - 4, FILE.index(b"IDAT") - 4
    for rows in (1, 12):
        other = png(np.resize(PIXELS, (rows, 5, 3)), [0] * rows)
        with pytest.raises(PngError, match="too few or too many"):
            rgb(FILE[:head_end] + other[head_end:], 5, 6)
    with pytest.raises(PngError, match=r"cannot be unpacked|too few"):
        rgb(FILE[:data] + chunk(b"IDAT", b"not packed") + chunk(b"IEND", b""), 5, 6)


def test_a_filter_that_there_is_not_is_not_read() -> None:
    lines = (b"\x05" + bytes(15)) * 6
    data = FILE.index(b"IDAT") - 4
    with pytest.raises(PngError, match="a filter 5"):
        rgb(FILE[:data] + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""), 5, 6)
