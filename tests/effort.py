"""How many random cases a test tries: many in `make test`, ten times as many in `make soak` unless it says how many."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])


def cases(usual: int, soak: int | None = None) -> int:
    if not os.environ.get("PACELINE_SOAK"):
        return usual
    return usual * 10 if soak is None else soak


def long(test: T) -> T:
    """A test that takes so long that only `make soak` has the time for it."""
    marked: T = pytest.mark.skipif(not os.environ.get("PACELINE_SOAK"), reason="takes long; make soak runs it")(test)
    return marked
