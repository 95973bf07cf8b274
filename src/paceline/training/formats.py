"""How a checkpoint lies on disk: safetensors, or torch's distributed checkpoint (DCP). Neither runs code when read.

Both hold flat dictionaries of tensors. What is for DCP alone is in `dcp.py`, which takes a second to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from paceline.training.saving import CheckpointError

Format = Literal["safetensors", "dcp"]
Parts = Mapping[str, dict[str, Tensor]]

PARTS = ("model", "optimizer")
SAFETENSORS = ".safetensors"
DCP = "dcp"


def check_format(format: str) -> None:  # noqa: A002
    if format not in get_args(Format):
        raise CheckpointError(f"there is no format {format!r}; there are {', '.join(get_args(Format))}")


def write(folder: Path, parts: Parts, format: Format) -> None:  # noqa: A002
    """Into a folder that exists."""
    if format == "dcp":
        from paceline.training import dcp

        dcp.write(folder / DCP, parts)
        return
    for part in PARTS:
        tensors = {name: tensor.contiguous() for name, tensor in parts[part].items()}
        save_file(tensors, folder / (part + SAFETENSORS))


def read(folder: Path) -> Parts:
    """What `write` has written, in either format."""
    if (folder / DCP).is_dir():
        from paceline.training import dcp

        return dcp.read(folder / DCP, PARTS)
    return {part: _read(folder / (part + SAFETENSORS)) for part in PARTS}


def _read(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
