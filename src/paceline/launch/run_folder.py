"""Where the files of a run go."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from paceline.observe.terminal import stop

RUNS = Path("runs")


def run_folder(given: str | None, name: str) -> Path:
    """The one that was given, or a new one in `runs`, named after the time, that no run of the same second shares."""
    folder = RUNS / f"{datetime.now():%Y%m%d-%H%M%S}-{name}" if given is None else Path(given)
    try:
        made = _made(folder, new=given is None)
    except OSError as error:
        stop(f"there can be no folder {str(folder)!r}: {error.strerror}; give another with --folder")
    if not os.access(made, os.W_OK):
        stop(f"nothing can be written to the folder {str(made)!r}; give another with --folder")
    return made


def _made(folder: Path, *, new: bool) -> Path:
    made, number = folder, 1
    while True:
        try:
            made.mkdir(parents=True, exist_ok=not new)
            return made
        except FileExistsError:
            if not new:
                raise
            number += 1
            made = folder.with_name(f"{folder.name}-{number}")
