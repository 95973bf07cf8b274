"""How many random cases a test tries: many in `make test`, ten times as many in `make soak`."""

from __future__ import annotations

import os


def cases(usual: int) -> int:
    return usual * 10 if os.environ.get("PACELINE_SOAK") else usual
