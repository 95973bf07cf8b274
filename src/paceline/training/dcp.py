"""Checkpoints in the format of torch's distributed checkpoint: `torch.distributed.checkpoint.load` reads them too.

torch's own reader unpickles an index. Here that index is first read by an unpickler that knows the names that DCP
writes into it and no others.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from paceline.training.saving import CheckpointError

PATHS = {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"}
KNOWN: dict[str, set[str]] = {
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", *(name for name, value in vars(torch).items() if isinstance(value, torch.dtype))},
    "collections": {"OrderedDict"},
    "pathlib": PATHS,
    "pathlib._local": PATHS,  # where Python 3.13 has them
}


def write(folder: Path, parts: Mapping[str, dict[str, Tensor]]) -> None:
    _without_warning()
    save(dict(parts), storage_writer=FileSystemWriter(folder, sync_files=False), no_dist=True)


def read(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in names}
    try:
        reader = Reader(folder)
        for key, stored in reader.read_metadata().state_dict_metadata.items():
            part, _, name = key.partition(".")
            if part not in parts or not isinstance(stored, TensorStorageMetadata):
                raise CheckpointError(f"{folder} has {key!r}, which is not a tensor of a checkpoint of Paceline's")
            parts[part][name] = torch.empty(stored.size, dtype=stored.properties.dtype)
        _without_warning()
        load(dict(parts), storage_reader=reader, no_dist=True)
    except (OSError, EOFError, ValueError, pickle.UnpicklingError, CheckpointException) as error:
        raise CheckpointError(f"{folder} cannot be read: {error}") from error
    return parts


class Reader(FileSystemReader):
    """torch's, which looks at the index first."""

    def read_metadata(self, *args: Any, **options: Any) -> Any:
        with (Path(self.path) / ".metadata").open("rb") as index:
            if not isinstance(_Unpickler(index).load(), Metadata):
                raise pickle.UnpicklingError("its index is not one of DCP's")
        return super().read_metadata(*args, **options)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in KNOWN.get(module, ()):
            raise pickle.UnpicklingError(f"its index names {module}.{name}, which has no business there")
        return super().find_class(module, name)


def _without_warning() -> None:
    """torch warns that there is no process group. There need not be one."""
    warnings.filterwarnings("ignore", "torch.distributed is disabled")
