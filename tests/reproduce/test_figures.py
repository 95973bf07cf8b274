"""The figures themselves, in virtual time: what was asked of them, on as short a run as shows it."""

from __future__ import annotations

from functools import cache
from statistics import mean, pstdev

import pytest

from paceline.reproduce import elasticbsp_fig4, esync_speed, fluentps, fluentps_fig6, fluentps_fig9, psp_table1
from paceline.reproduce.psp_rounds import scattered, seconds_per_round, tailed
from paceline.reproduce.target import Result, silent
from paceline.sim import simulate_cluster
from paceline.sim.cluster import Network

ASKED = 60 * psp_table1.MINUTES["sync"] / psp_table1.NUMBER  # seconds of a synchronous round
ROUNDS = 25


# PSP-SGD.


@cache
def simulated() -> dict[str, float]:
    """Seconds of a round in each column, with the base time fitted."""
    waiting = psp_table1.seconds(psp_table1.cluster(10.0), "sync", ROUNDS) - 10.0
    cluster = psp_table1.cluster(ASKED - waiting)
    partial = {name: psp_table1.seconds(cluster, name, ROUNDS) for name in psp_table1.PARTIAL}
    return {"base": ASKED - waiting, "sync": ASKED, **partial}


def test_partial_pushing_and_pulling_save_what_was_asked() -> None:
    saved = {name: 1 - simulated()[name] / ASKED for name in psp_table1.PARTIAL}
    assert saved["c=28"] >= 0.13
    assert saved["c=28, b=90 %"] >= 0.20
    assert 0 < saved["c=28"] < saved["c=28, b=90 %"] < saved["c=20, b=75 %"]


def test_waiting_is_the_same_whatever_an_iteration_takes() -> None:
    """So that one synchronous run is enough to fit the base time."""
    waits = [psp_table1.seconds(psp_table1.cluster(base), "sync", 3) - base for base in (10.0, 11.0)]
    assert waits[0] == pytest.approx(waits[1])


@pytest.mark.parametrize("column", psp_table1.COLUMNS)
def test_rounds_without_messages_take_as_long_as_the_simulator_s(column: str) -> None:
    c, b = psp_table1.COLUMNS[column]
    delays = scattered(32, psp_table1.CHANCE, psp_table1.LATE, 0.0)
    base = simulated()["base"]
    runs = [seconds_per_round(delays, base, workers=32, c=c, b=b, rounds=ROUNDS, seed=seed) for seed in range(20)]
    assert simulated()[column] == pytest.approx(mean(runs), abs=2.5 * pstdev(runs) + psp_table1.ORDINARY)


def test_rounds_by_hand() -> None:
    still = tailed(4, 0.0, 4.0, 0.0, 1.0)
    assert seconds_per_round(still, 2.0, workers=3, c=3, b=1.0, rounds=5) == pytest.approx(2.0)
    always = scattered(4, 1.0, 4.0, 0.0)
    assert seconds_per_round(always, 2.0, workers=3, c=2, b=0.5, rounds=5) == pytest.approx(6.0)


def test_the_fit_lies_where_the_paper_s_saving_is() -> None:
    spreads = [
        psp_table1.Spread("ordinary", sigma, dict.fromkeys(psp_table1.PARTIAL, 20 + 20 * sigma)) for sigma in (0.0, 1.0)
    ]
    found = psp_table1.fit(spreads)
    assert found.amount == pytest.approx(0.5, abs=0.01)
    assert found.saved["c=28"] == pytest.approx(30.0, abs=0.1)


# FluentPS.


def test_soft_release_holds_what_was_asked_and_lazy_a_tenth() -> None:
    soft = fluentps.counted("ssp(s=3, release=soft)", fluentps.alexnet(), 400)
    lazy = fluentps.counted("ssp(s=3)", fluentps.alexnet(), 400)
    assert 3500 <= soft.held <= 5000
    assert soft.held >= 10 * lazy.held


def test_pssp_saves_held_pulls_in_the_widest_pair() -> None:
    models = fluentps_fig9.models(10, "soft")
    held = {kind: fluentps.counted(model, fluentps.alexnet(), 300).held for kind, model in models.items()}
    assert held["pssp"] < 0.3 * held["ssp"]


def test_elastic_slicing_saves_about_what_the_paper_says() -> None:
    space = fluentps_fig6.spaces()["ResNet-56"]
    costs = {mode: fluentps_fig6.cost(fluentps_fig6.cluster(space, 32, mode), mode, 6) for mode in fluentps_fig6.MODES}
    assert costs["overlap"].total <= costs["barrier"].total
    assert 1.2 < costs["overlap"].total / costs["elastic"].total < 1.5
    assert 0.4 < 1 - costs["elastic"].communication / costs["overlap"].communication < 0.6


# ESync.


def test_esync_s_speed_traffic_and_blocking() -> None:
    result = esync_speed.run(False, silent)
    assert result.ours("ESync over", "SSGD, samples") >= 25
    assert result.ours("ESync over", "ASGD, bytes") < 1 / 3
    assert result.ours("blocking", "fastest worker, mean") <= esync_speed.FAST
    assert result.ours("blocking", "fastest worker, most") < esync_speed.SLOW / 8
    assert result.ours("blocking", "all workers, free network, most") <= esync_speed.FAST


def test_from_the_third_round_on_esync_blocks_the_fastest_for_less_than_one_of_its_iterations() -> None:
    fastest = esync_speed.blocking(simulate_cluster("esync", esync_speed.cluster(), 300.0))[0]
    assert len(fastest) > 10
    assert max(fastest[1:]) <= esync_speed.FAST


def test_blocking_is_from_being_ready_to_the_last_one_s() -> None:
    run = simulate_cluster("bsp", esync_speed.cluster(Network()), 15.0)
    fast, slow, other = esync_speed.blocking(run)
    assert fast == pytest.approx([esync_speed.SLOW - esync_speed.FAST] * 3)
    assert slow == other == [0.0] * 3


# ElasticBSP.


def test_elastic_bsp_takes_less_time_than_bsp() -> None:
    net = elasticbsp_fig4.NETS["AlexNet"]
    bsp, elastic = (elasticbsp_fig4.taken(net, model, 600).hours for model in ("bsp", "elastic_bsp(R=15)"))
    assert elastic < bsp


def test_a_plan_costs_what_table_2_says_at_its_points() -> None:
    assert elasticbsp_fig4.planning(15) == pytest.approx(149e-6)
    assert elasticbsp_fig4.planning(150) == pytest.approx(1320e-6)


# Made-up figures.


def made_up(held: float) -> Result:
    cells = {
        (release, pair, kind): fluentps.Counted(held if kind == "pssp" else 1000.0, 50.0)
        for release in fluentps_fig9.RELEASES
        for pair in fluentps_fig9.PAIRS
        for kind in ("pssp", "ssp")
    }
    return fluentps_fig9.result(cells)


@pytest.mark.parametrize(
    ("held", "verdict"), [(20.0, "holds"), (500.0, "holds in direction"), (2000.0, "does not hold")]
)
def test_a_target_s_verdict_follows_its_figures(held: float, verdict: str) -> None:
    (claim,) = (claim for claim in made_up(held).claims if "97.1" in claim.text)
    assert claim.verdict == verdict
