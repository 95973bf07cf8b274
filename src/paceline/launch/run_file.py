"""The file that says all about a run that is under way: whoever can read it can take part, or change the model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from paceline.nodes import Job, WrongRequest
from paceline.slowness import Slowness
from paceline.wire import Address

NAME = "run.json"
MEETING = "meet"  # under `ddp`, the file through which workers meet


class RunFile(Struct, frozen=True, kw_only=True):
    """`slow` is how nodes are slowed down on purpose. Under `ddp` there is no way to a coordinator."""

    job: Job
    coordinator: Address
    wire: Literal["auto", "tcp", "shared-memory"] = "auto"
    token: str | None = None
    slow: tuple[Slowness, ...] = ()

    @staticmethod
    def read(path: str | Path) -> RunFile:
        """The file itself, or the folder that it is in."""
        file = Path(path) / NAME if Path(path).is_dir() else Path(path)
        try:
            return msgspec.json.decode(file.read_bytes(), type=RunFile)
        except OSError as error:
            raise WrongRequest(
                f"there is no run at {str(path)!r}: {error.strerror}; give the folder that paceline run or paceline "
                "serve has named"
            ) from None
        except msgspec.DecodeError as error:
            raise WrongRequest(f"{str(file)!r} does not describe a run: {error}") from None

    def write(self, folder: Path) -> Path:
        """Readable by its owner alone, since it may have the token in it; there whole or not at all."""
        file, part = folder / NAME, folder / f"{NAME}.part"
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            out.write(msgspec.json.format(msgspec.json.encode(self), indent=2))
        part.rename(file)
        return file
