"""Targets that learn: their races in a small form, and their verdicts on races that never were."""

from __future__ import annotations

from math import inf
from pathlib import Path

import msgspec
import pytest
import torch

from paceline.reproduce import (
    dc_asgd_accuracy,
    elasticbsp_accuracy,
    esync_accuracy,
    esync_splits,
    fluentps_accuracy,
    picture,
    psp_accuracy,
)
from paceline.reproduce.all import TARGETS
from paceline.reproduce.race import DATA, NETS, TRIED, Key, Lesson, Racer, _score, attend, noise, race
from paceline.reproduce.target import Result, silent
from paceline.sim import Cluster, Group
from paceline.sim.learning import Learned, Point
from paceline.sim.record import Timeline

MACHINES = Cluster((Group(seconds=0.1, count=2), Group(seconds=0.4)))


def learned(*accuracies: float, every: float = 1.0) -> Learned:
    nothing = Timeline("bsp", 1.0, 1, 0, 0.0, 0.0, 0, 0, 0.0, 0, [])
    return Learned([Point(number * every, one, number) for number, one in enumerate(accuracies)], nothing)


def racer(name: str, slope: float, final: float, seeds: int = 3) -> Racer:
    """One that rises by so much at each second, up to its final accuracy, which differs a little between seeds."""
    runs = []
    for seed in range(seeds):
        runs.append(learned(*(min(slope * second, final + 0.001 * seed) for second in range(60))))
    return Racer(name, 0.1, runs)


def test_models_race_and_each_has_the_best_of_the_rates() -> None:
    lesson = Lesson("bsp", MACHINES, until=16.0, every=1.0, data="digits", batch=32)
    lessons = {"BSP": lesson, "ASP": Lesson("asp", MACHINES, until=16.0, every=1.0, data="digits", batch=32)}
    told: list[int] = []
    racers = race(lessons, rates=(1e-6, 0.5), seeds=2, accuracy=0.3, progress=lambda done, *_: told.append(done))
    assert told[0] == 0
    assert max(told) == 2 * 2 * TRIED + 2 * 2
    assert {name: one.rate for name, one in racers.items()} == {"BSP": 0.5, "ASP": 0.5}
    for one in racers.values():
        assert len(one.runs) == 2
        assert one.runs[0].curve != one.runs[1].curve, "another seed"
        assert one.runs[0].timeline.seconds == 16.0, "only trials end early"
    assert racers["ASP"].time(0.3) < racers["BSP"].time(0.3) < inf


def test_a_leader_chooses_the_rate_for_all() -> None:
    lesson = Lesson("bsp", MACHINES, until=2.0, every=1.0, data="digits", batch=32)
    lessons = {"one": lesson, "other": lesson}
    racers = race(lessons, rates=(0.5,), seeds=1, leader="one", progress=silent)
    assert [one.rate for one in racers.values()] == [0.5, 0.5]
    assert racers["one"].runs == racers["other"].runs, "the same lesson with the same seed"


def test_the_first_to_an_accuracy_is_best_and_else_the_most_accurate() -> None:
    soon, late, never, less = (
        learned(0, 0.9, 0.5),
        learned(0, 0.1, 0.9),
        learned(0, 0.2, 0.3),
        learned(0, 0.2, 0.2),
    )
    ranked = sorted([never, late, less, soon], key=lambda one: _score(one, 0.8), reverse=True)
    assert ranked == [soon, late, never, less]
    assert _score(late, None) > _score(never, None)


def test_a_racer_that_never_gets_there_takes_for_ever() -> None:
    one = racer("BSP", 0.1, 0.7)
    assert one.time(0.65) == 7.0
    assert one.times(0.75) == [inf] * 3
    assert one.spread() == pytest.approx(0.002)
    assert noise([one, racer("ASP", 0.1, 0.5, seeds=1)]) == pytest.approx(0.002)
    fickle = Racer("PSP", 0.1, [learned(0, 0.9), learned(0, 0.1)])
    assert noise([one, fickle]) == 0.02, "who is fickle does not make all others the same"


def esync(slope: float, final: float) -> Result:
    racers = {"SSGD": racer("SSGD", 0.02, 0.85), "ASGD": racer("ASGD", 0.5, 0.8), "ESync": racer("ESync", slope, final)}
    return esync_accuracy.result({"i.i.d.": racers, "Dirichlet(0.1)": racers})


@pytest.mark.parametrize(
    ("slope", "final", "verdicts"),
    [
        (0.4, 0.86, ["holds", "holds", "holds"]),
        (0.03, 0.847, ["holds in direction", "holds in direction", "holds"]),
        (0.01, 0.5, ["does not hold", "does not hold", "does not hold"]),
    ],
)
def test_esync_is_judged_by_its_time_and_its_accuracy(slope: float, final: float, verdicts: list[str]) -> None:
    result = esync(slope, final)
    assert [claim.verdict for claim in result.claims[:3]] == verdicts


def others(final: float) -> dict[str, Result]:
    def field(names: list[str], better: str) -> dict[str, Racer]:
        return {name: racer(name, 0.1, final if better in name else 0.8) for name in names}

    return {
        "dc-asgd-accuracy": dc_asgd_accuracy.result("CIFAR-10", 0.65, field([*dc_asgd_accuracy.MODELS], "DC-ASGD")),
        "esync-accuracy": esync(0.4, final),
        "elasticbsp-accuracy": elasticbsp_accuracy.result("CIFAR-10", 0.65, field([*elasticbsp_accuracy.MODELS], "R=")),
        "fluentps-accuracy": fluentps_accuracy.result("CIFAR-10", 0.55, field([*fluentps_accuracy.MODELS], "PSSP")),
        "psp-accuracy": psp_accuracy.result("CIFAR-10", 0.55, field([*psp_accuracy.MODELS], "b=90")),
    }


def splits(without: float, spread: float, momentum: float) -> Result:
    """Every method as SSGD is, but ESync: in the first split by `spread` as fast as in the others."""
    times = {name: [100.0] * len(esync_splits.SPLITS) for name in esync_splits.METHODS}
    for name, time in ((esync_splits.WITHOUT, without), (esync_splits.WITH, momentum)):
        times[name] = [time / spread, *[time] * (len(esync_splits.SPLITS) - 1)]
    return esync_splits.result(times)


@pytest.mark.parametrize(
    ("without", "spread", "momentum", "verdicts"),
    [
        (10.0, 1.0, 5.0, ["holds"] * 5),
        (10.0, 0.1, 9.5, ["holds", "holds in direction", "holds", "holds in direction", "holds in direction"]),
        (50.0, 1.0, 5.0, ["holds in direction", "does not hold", "holds", "holds", "holds"]),
        (inf, 1.0, inf, ["does not hold"] * 5),
    ],
)
def test_splits_are_judged_by_their_median_and_one_by_one(
    without: float, spread: float, momentum: float, verdicts: list[str]
) -> None:
    result = splits(without, spread, momentum)
    assert [claim.verdict for claim in result.claims] == verdicts
    medians = [row.ours for row in result.of(esync_splits.WITH) if row.cell == esync_splits.MEDIAN]
    assert medians == [momentum if momentum < inf else None]


def test_splits_that_nobody_was_good_enough_with_can_be_drawn(tmp_path: Path) -> None:
    picture.save(esync_splits.draw(splits(inf, 1.0, 5.0)), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_every_split_is_learnt_by_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    lessons, told = esync_splits.lessons, []

    def small(quick: bool) -> dict[Key, Lesson]:
        little = {"data": "digits", "until": 8.0, "every": 4.0, "batch": 8, "alpha": 1.0}
        return {key: msgspec.structs.replace(lesson, **little) for key, lesson in lessons(quick).items()}

    monkeypatch.setattr(esync_splits, "SPLITS", range(31, 33))
    monkeypatch.setattr(esync_splits, "lessons", small)
    result = esync_splits.run(True, lambda done, *_: told.append(done))
    assert max(told) == 2 * len(esync_splits.METHODS)
    assert result.groups() == list(esync_splits.METHODS)
    torch.set_num_threads(1)
    for (name, _, seed), lesson in small(True).items():
        if name in ("SSGD", esync_splits.WITH):
            [ours] = [row.ours for row in result.of(name) if row.cell == f"split {seed}"]
            assert ours == attend(lesson).time_to(esync_accuracy.ACCURACY)
            assert (ours is None) == (name == "SSGD")


@pytest.mark.parametrize("name", [name for name, one in TARGETS.items() if one.learns and name != "esync-splits"])
def test_what_is_not_below_beyond_noise_holds_and_what_is_does_not(name: str, tmp_path: Path) -> None:
    kept, lost = (
        next(claim for claim in result.claims if "below" in claim.text or "keeps" in claim.text)
        for result in (others(final)[name] for final in (0.849, 0.7))
    )
    assert (kept.verdict, lost.verdict) == ("holds", "does not hold")
    path = tmp_path / "figure.png"
    picture.save(TARGETS[name].draw(others(0.8)[name]), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


def test_every_lesson_can_be_given() -> None:
    for quick in (True, False):
        lessons = [*esync_accuracy.lessons(0.1, quick=quick).values(), *esync_splits.lessons(quick).values()]
        for module in (dc_asgd_accuracy, elasticbsp_accuracy, fluentps_accuracy, psp_accuracy):
            lessons += module.lessons(quick).values()
        for lesson in lessons:
            assert lesson.net in NETS
            assert lesson.data in DATA
            assert 0 < lesson.every < lesson.until
