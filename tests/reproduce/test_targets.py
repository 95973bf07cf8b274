"""Every target in its short form: all the paper's cells are there, all claims are judged, and a picture comes out."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from paceline.reproduce import fluentps_fig9, fluentps_table4, picture
from paceline.reproduce.all import TARGETS
from paceline.reproduce.target import Result, silent
from paceline.sim import Cluster

VERDICTS = {"holds", "holds in direction", "does not hold"}
results: dict[str, Result] = {}


@pytest.fixture(params=[name for name, target in TARGETS.items() if not target.learns])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def quickly(name: str) -> Result:
    """Run once for all tests."""
    if name not in results:
        results[name] = TARGETS[name].run(True, silent)
    return results[name]


def test_the_papers_targets_are_all_there() -> None:
    papers = {"zipline-table2", "fluentps-fig6", "fluentps-fig9", "fluentps-table4", "psp-table1", "esync-speed"}
    assert papers | {"elasticbsp-fig4"} <= set(TARGETS)


def test_a_target_says_what_it_assumes(name: str) -> None:
    target = TARGETS[name]
    assert target.name == name
    assert target.assumed
    assert target.calibrated
    assert target.cluster is None or isinstance(target.cluster, Cluster)


def test_a_target_runs_and_judges_its_claims(name: str) -> None:
    result = quickly(name)
    assert result.claims
    for claim in result.claims:
        assert claim.verdict in VERDICTS
        assert claim.rule.startswith("holds ")
        assert any(letter.isdigit() for letter in claim.why), "a reason names the figure"
    cells = [(row.group, row.cell) for row in result.rows]
    assert len(set(cells)) == len(cells)


def test_a_target_tells_how_far_it_is() -> None:
    told: list[tuple[int, int, str]] = []
    TARGETS["esync-speed"].run(True, lambda *progress: told.append(progress))
    assert [done for done, _, _ in told] == list(range(len(told)))
    assert all(done < total and what for done, total, what in told)


def test_its_picture_is_a_png(name: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"{name}.png"
    picture.save(TARGETS[name].draw(quickly(name)), path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")


# All the papers' cells.


def paper(name: str, group: str) -> dict[str, float | None]:
    return {row.cell: row.paper for row in quickly(name).of(group)}


def test_table_4_has_twelve_columns_of_each_net_and_data_set() -> None:
    groups = [
        f"{net}, {data}: {what}"
        for net, data, what in product(("AlexNet", "ResNet-56"), ("CIFAR-10", "CIFAR-100"), ("held pulls", "seconds"))
    ]
    assert quickly("fluentps-table4").groups() == groups
    for group in groups:
        assert len(paper("fluentps-table4", group)) == 12
        assert None not in paper("fluentps-table4", group).values()
    assert paper("fluentps-table4", groups[0])["soft, P=1"] == 4002


def test_table_2_has_every_planner_and_size() -> None:
    for planner in ("ZipLine", "FullGridScan", "GridScan"):
        assert len(paper("zipline-table2", planner)) == 6
        assert None not in paper("zipline-table2", planner).values()
    assert paper("zipline-table2", "FullGridScan")["1000 x 150"] == 207_000_000


def test_table_1_has_four_columns_and_figure_9_four_pairs() -> None:
    assert list(paper("psp-table1", "minutes").values()) == [199.97, 164.97, 139.95, 136.54]
    for release in ("soft", "lazy"):
        assert list(paper("fluentps-fig9", f"{release}: saved")) == ["A, B", "C, D", "E, F", "G, H"]
        assert len(paper("fluentps-fig9", f"{release}: held pulls")) == 8


def test_the_pairs_of_figure_9_share_a_bound() -> None:
    assert [fluentps_fig9.models(over, "soft")["ssp"] for over in fluentps_fig9.PAIRS.values()] == [
        f"ssp(s={s}, release=soft)" for s in (4, 5, 7, 12)
    ]


def test_figure_4_has_every_model_and_horizon() -> None:
    models = ["BSP", "ASP", "SSP", "R=15", "R=30", "R=60", "R=120", "R=240"]
    for net in ("AlexNet", "ResNet-50"):
        assert list(paper("elasticbsp-fig4", f"{net}: hours")) == models


def test_only_what_was_fitted_is_called_calibrated() -> None:
    fitted = [(row.group, row.cell) for row in quickly("psp-table1").rows if row.calibrated]
    assert fitted == [("minutes", "sync")]
    assert len(fluentps_table4.FITTED) == sum(row.calibrated for row in quickly("fluentps-table4").rows) == 5
