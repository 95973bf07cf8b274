"""What a script tells whoever started its run, and what it is told: how good its model is, and which seed it has."""

from __future__ import annotations

import os

from paceline.launch.environment import SEED
from paceline.training.session import session


class ReportError(ValueError):
    """Something that cannot be reported."""


def report(*, accuracy: float) -> None:
    """The model has been measured: this share of its answers is right. Alone, without a run, nothing happens.

    The seconds count from when the first step was possible. One worker is enough, usually worker 0. Measure the
    parameters that everyone shares, so only while `opt.synchronized`.
    """
    if not 0 <= accuracy <= 1:
        raise ReportError(f"accuracy is {accuracy}; it is a share of right answers, from 0 to 1")
    place = session()
    if place is not None:
        place.measured(float(accuracy))


def seed() -> int:
    """The seed of the run, the same for all its workers; 0 if this script is alone."""
    text = os.environ.get(SEED) or "0"
    if not text.isdecimal():
        raise ReportError(f"{SEED} is {text[:40]!r}; it is a whole number from 0")
    return int(text)
