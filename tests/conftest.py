"""What is the same for all tests."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Hundreds of tests collect garbage to see that nothing is left, and should not go through all of torch for it."""
    gc.collect()
    gc.freeze()
