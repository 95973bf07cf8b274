"""Tiny Shakespeare: 1.1 MB of his plays, for models that predict the next character (Karpathy 2015; public domain)."""

from __future__ import annotations

from pathlib import Path
from string import ascii_letters

import numpy as np
import torch
from torch.utils.data import TensorDataset

from paceline.data.source import Download, Source, files

CHARACTERS = "".join(sorted("\n !$&',-.3:;?" + ascii_letters))
SIZE = 1_115_394
CHECKSUM = "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
TRAINING = 0.9  # the first part of the text; the rest is for the test
OFFICIAL = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
SOURCE = Source(
    name="Tiny Shakespeare",
    folder="tinyshakespeare",
    advice="Put data/tinyshakespeare/input.txt of https://github.com/karpathy/char-rnn into "
    "~/.cache/paceline/tinyshakespeare.",
    others=("data/tinyshakespeare", "data/shakespeare_char"),
    downloads=(Download(OFFICIAL, SIZE, CHECKSUM),),
)


def load(folder: str | Path | None = None, context: int = 64) -> tuple[TensorDataset, TensorDataset]:
    """The training and the test set: stretches of `context` characters, and of those that follow each of them.

    A character is its place in `CHARACTERS`. Stretches follow each other; what is left at the end is left out.
    """
    [path] = SOURCE.find(folder, look)
    SOURCE.check(path, CHECKSUM)
    content = SOURCE.read(path, SIZE)
    places = np.zeros(128, np.int64)
    places[list(CHARACTERS.encode())] = range(len(CHARACTERS))
    text = torch.from_numpy(places[np.frombuffer(content, np.uint8)])
    cut = int(TRAINING * len(text))
    return _stretches(text[:cut], context), _stretches(text[cut:], context)


def look(folder: Path) -> list[Path] | None:
    """The file, if it is there."""
    return files(folder, "input.txt")


def _stretches(text: torch.Tensor, context: int) -> TensorDataset:
    whole = (len(text) - 1) // context * context
    return TensorDataset(text[:whole].view(-1, context), text[1 : whole + 1].view(-1, context))
