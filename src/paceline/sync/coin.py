"""The coin of probabilistic models: a hash, so that the same pull gets the same coin everywhere and on every replay."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def _mix(x: int) -> int:
    """SplitMix64's finalizer: every bit of `x` reaches every bit of the result."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def coin(seed: int, worker: int, iteration: int, salt: int) -> float:
    """A number in [0, 1), uniform over workers and iterations."""
    x = _mix((seed ^ _mix(worker)) & _MASK)
    x = _mix(x ^ _mix((salt & 0xFFFFFFFF) << 32 ^ iteration & _MASK))
    return (x >> 11) * 2.0**-53
