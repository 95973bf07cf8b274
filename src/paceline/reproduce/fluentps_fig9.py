"""FluentPS's figure 9: PSSP and the SSP with the same bound on its regret, and how many held pulls PSSP saves."""

from __future__ import annotations

from matplotlib.figure import Figure

from paceline.reproduce import fluentps, picture, verdicts
from paceline.reproduce.fluentps import Counted
from paceline.reproduce.target import Claim, Progress, Result, Row, Target
from paceline.sync.models.pssp import PSSP

PAIRS = {"A, B": 2, "C, D": 3, "E, F": 5, "G, H": 10}  # one over PSSP's c
S = 3
RELEASES = ("soft", "lazy")
PAPER = {("soft", "G, H"): 97.1}  # the figure's bars are not in the text; two savings are
ITERATIONS, QUICKLY = 1000, 30
PAPER_LAZY = 70.7  # the most that is saved with lazy release, in a pair that the text does not name

Cells = dict[tuple[str, str, str], Counted]  # by release, pair, and which of the two


def models(over: int, release: str) -> dict[str, str]:
    """The two of a pair."""
    s = PSSP(s=S, c=1 / over).same_regret_as
    assert s is not None
    return {
        "pssp": f"pssp(s={S}, c={1 / over!r}, release={release})",
        "ssp": f"ssp(s={round(s)}, release={release})",
    }


def run(quick: bool, progress: Progress) -> Result:
    cluster, iterations = fluentps.alexnet(), QUICKLY if quick else ITERATIONS
    wanted = [(release, pair) for release in RELEASES for pair in PAIRS]
    cells: Cells = {}
    for done, (release, pair) in enumerate(wanted):
        for kind, model in models(PAIRS[pair], release).items():
            progress(done, len(wanted), model)
            cells[release, pair, kind] = fluentps.counted(model, cluster, iterations)
    return result(cells)


def result(cells: Cells) -> Result:
    rows = []
    for release in RELEASES:
        for pair, over in PAIRS.items():
            first, second = pair.split(", ")
            pssp, ssp = cells[release, pair, "pssp"], cells[release, pair, "ssp"]
            rows += [
                Row(f"{release}: held pulls", f"{first}: PSSP(3, 1/{over})", None, pssp.held, "held pulls"),
                Row(f"{release}: held pulls", f"{second}: SSP({over + S - 1})", None, ssp.held, "held pulls"),
            ]
        for pair in PAIRS:
            rows.append(Row(f"{release}: saved", pair, PAPER.get((release, pair)), saved(cells, release, pair), "%"))
        for pair in PAIRS:
            quicker = 100 * (1 - cells[release, pair, "pssp"].seconds / cells[release, pair, "ssp"].seconds)
            paper = 28.5 if (release, pair) == ("soft", "G, H") else None
            rows.append(Row(f"{release}: less time", pair, paper, quicker, "%"))
    return Result(rows, _claims(cells))


def saved(cells: Cells, release: str, pair: str) -> float:
    """Percent of SSP's held pulls; below 0 if PSSP has more."""
    ssp = cells[release, pair, "ssp"].held
    return 100 * (1 - cells[release, pair, "pssp"].held / ssp) if ssp else 0.0


def _claims(cells: Cells) -> list[Claim]:
    soft, lazy = ({pair: saved(cells, release, pair) for pair in PAIRS} for release in RELEASES)
    last = cells["soft", "G, H", "pssp"], cells["soft", "G, H", "ssp"]
    return [
        verdicts.everywhere(
            "soft: PSSP holds fewer pulls than the SSP with the same regret bound, in every pair",
            soft,
            0,
            unit="%",
            why="saved; a worker at the bound is held at one pull in 1/c instead of at each",
        ),
        verdicts.near(
            "soft: PSSP saves up to 97.1 % of the held pulls (G against H)",
            soft["G, H"],
            97.1,
            neutral=0,
            unit="%",
            why=f"{last[0].held:,.0f} against {last[1].held:,.0f}; where workers differ persistently the fast are at "
            "the bound nearly always, and a tenth of their pulls is held: 90 % is the most that c=1/10 can save",
        ),
        verdicts.near(
            "soft: PSSP takes up to 28.5 % less time (G against H)",
            100 * (1 - last[0].seconds / last[1].seconds),
            28.5,
            neutral=0,
            unit="%",
            why=f"{last[0].seconds:.1f} s against {last[1].seconds:.1f} s per 100 iterations; SSP can lose no "
            "more than the slowest worker's distance from the mean",
        ),
        verdicts.near(
            "lazy: PSSP still saves up to 70.7 %",
            max(lazy.values()),
            PAPER_LAZY,
            neutral=0,
            unit="%",
            why="the most of the four pairs, "
            + ", ".join(f"{pair} {value:.0f} %" for pair, value in lazy.items())
            + "; "
            "a lazy SSP with a large s is held rarely and for long, while PSSP(3, c) is held c of the time from 3 on",
        ),
    ]


def draw(found: Result) -> Figure:
    figure, axes = picture.sheet("FluentPS, figure 9: held pulls per 100 iterations", 3, width=14, height=4.8)
    for plot, release in zip(axes, RELEASES, strict=False):
        held = found.of(f"{release}: held pulls")
        labels = [f"{first.cell}\n{second.cell}" for first, second in zip(held[::2], held[1::2], strict=True)]
        picture.bars(
            plot,
            labels,
            {"PSSP": [row.ours for row in held[::2]], "SSP": [row.ours for row in held[1::2]]},
            unit="held pulls",
        )
        plot.set_title(f"ours, {release} release", fontsize=11)
        plot.tick_params(axis="x", labelsize=8)
    rows = found.of("soft: saved")
    series = {"paper": [row.paper for row in rows], "ours": [row.ours for row in rows]}
    picture.bars(axes[2], [row.cell for row in rows], series, unit="% saved")
    axes[2].set_title("saved by PSSP, soft release", fontsize=11)
    axes[2].legend(frameon=False, fontsize=9, loc="upper left")
    return figure


TARGET = Target(
    name="fluentps-fig9",
    paper="FluentPS, figure 9",
    shows="held pulls that PSSP saves over the SSP with the same regret bound",
    takes="half a minute",
    assumed=("the cluster of fluentps-table4: 64 persistently slightly unequal workers, 1 server",),
    calibrated="nothing here; the cluster is as fluentps-table4 has it",
    cluster=fluentps.alexnet(),
    run=run,
    draw=draw,
)
