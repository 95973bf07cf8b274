"""How many random cases a test tries: many in `make test`, ten times as many in `make soak` unless it says how many."""

from __future__ import annotations

import os


def cases(usual: int, soak: int | None = None) -> int:
    if not os.environ.get("PACELINE_SOAK"):
        return usual
    return usual * 10 if soak is None else soak
