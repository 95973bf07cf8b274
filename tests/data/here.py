"""What of the real data is on this machine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


def here(data: ModuleType) -> Path:
    """The first place that has a data set. Where there is none, the test is skipped: only `make data` downloads."""
    places: list[Path] = data.SOURCE.places()
    for place in places:
        if data.look(place) is not None:
            return place
    looked = ", ".join(str(place) for place in places)
    pytest.skip(f"{data.SOURCE.name} is not on this machine: looked in {looked}")
