"""The bench of late answers trains for real, and compares turn by turn. Times are not judged."""

from __future__ import annotations

import pytest

from paceline.bench.slow_server import MODELS, Run, _rows, run


def test_workers_train_with_late_answers() -> None:
    trained = run(MODELS[1], "server *: 5% +50ms", 10, seed=0)
    assert trained.seconds > 0.05
    assert trained.accuracy > 0.3, "a tenth would be luck"
    assert 0 < trained.dropped < 0.3


def test_what_is_lost_is_the_median_over_the_turns() -> None:
    seconds = {("bsp", ""): [1.0, 2.0, 4.0], ("bsp", "s"): [1.5, 4.0, 5.0], ("psp", ""): [2.0, 2.0, 2.0]}
    seconds["psp", "s"] = [2.2, 2.0, 2.1]
    runs = {key: [Run(one, 0.9, 0.0) for one in times] for key, times in seconds.items()}
    undisturbed, bsp, alone, psp = _rows(runs, 10, "bsp")
    assert (undisturbed.lost, undisturbed.over_bsp, alone.lost) == (0, 0, 0)
    assert bsp.lost == bsp.over_bsp == pytest.approx(0.5)
    assert psp.lost == pytest.approx(0.05)
    assert psp.over_bsp == pytest.approx(0.0)
    assert (bsp.ms_per_iteration, bsp.slow) == (4000, "s")
