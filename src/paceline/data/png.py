"""PNG images as arrays: as much of the format as photographs in plain RGB need, with numpy alone."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
NONE, SUB, UP, AVERAGE, PAETH = range(5)  # how a line was filtered before it was packed
RGB = 3


class PngError(ValueError):
    """Not a PNG, or not one of the kind and size that was asked for."""


def rgb(content: bytes, width: int, height: int) -> np.ndarray:
    """The pixels of an RGB image of that size with a byte per colour, of shape (height, width, 3)."""
    chunks = _chunks(content)
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    if not chunks or chunks[0] != (b"IHDR", size):
        raise PngError(f"not an RGB image of {width}x{height} pixels that is not interlaced")
    length = height * (1 + RGB * width)
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"), length + 1)
    except zlib.error as error:
        raise PngError(f"its pixels cannot be unpacked: {error}") from error
    if len(raw) != length or not unpacker.eof:
        raise PngError("it has too few or too many pixels")
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + RGB * width)
    return _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, RGB))


def _chunks(content: bytes) -> list[tuple[bytes, bytes]]:
    """The kind and content of each part of the file, up to the one that says it is the end."""
    if not content.startswith(SIGNATURE):
        raise PngError("not a PNG")
    chunks: list[tuple[bytes, bytes]] = []
    at = len(SIGNATURE)
    while not chunks or chunks[-1][0] != b"IEND":
        if at + 12 > len(content):
            raise PngError("it is cut short")
        length = int.from_bytes(content[at : at + 4], "big")
        body, check = content[at + 4 : at + 8 + length], content[at + 8 + length : at + 12 + length]
        if int.from_bytes(check, "big") != zlib.crc32(body) or len(check) < 4:
            raise PngError("it is cut short or damaged")
        chunks.append((body[:4], body[4:]))
        at += 12 + length
    return chunks


def _unfiltered(filters: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Undoes the filter of each line: all sums are of bytes, and wrap around."""
    if filters.max() > PAETH:
        raise PngError(f"it has a filter {filters.max()}, which there is not")
    pixels = lines.copy()
    sub = filters == SUB
    pixels[sub] = np.cumsum(lines[sub], axis=1, dtype=np.uint8)
    nothing = np.zeros_like(pixels[0])
    for row in np.flatnonzero(filters >= UP):
        above = pixels[row - 1] if row else nothing
        if filters[row] == UP:
            pixels[row] += above
        else:
            pixels[row] = _along(pixels[row], above, filters[row] == PAETH)
    return pixels


def _along(line: np.ndarray, above: np.ndarray, paeth: bool) -> np.ndarray:
    """Undoes the two filters that look both left and up, which only goes pixel by pixel. Photographs have few."""
    done = np.empty_like(line)
    for colour in range(RGB):
        left = 0
        values = []
        ups = [0, *above[:, colour].tolist()]
        for value, (corner, up) in zip(line[:, colour].tolist(), pairwise(ups), strict=True):
            left = (value + (_paeth(left, up, corner) if paeth else (left + up) // 2)) % 256
            values.append(left)
        done[:, colour] = values
    return done


def _paeth(left: int, up: int, corner: int) -> int:
    """The neighbour that is nearest to left + up - corner; of equally near ones, the first."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda neighbour: abs(guess - neighbour))
