"""The table, the picture and the page of comparisons that nobody has run."""

from __future__ import annotations

import re
import warnings
from base64 import b64decode
from html.parser import HTMLParser
from io import BytesIO, StringIO

import matplotlib.image
import pytest
from rich.console import Console

from paceline.compare import view
from paceline.compare.outcome import WorkerShare
from paceline.compare.page import page
from paceline.compare.picture import draw, png
from paceline.compare.plan import Turn
from paceline.compare.table import cells, heads, legend, table
from paceline.compare.view import ComparisonView, said
from paceline.compare.whole import Report
from paceline.launch.run import Measured
from tests.compare.reports import GRID, MODELS, outcome, report

CALLS = 'Traceback (most recent call last):\n  File "a.py", line 9, in <module>\n    main()\n'
DURING = "During handling of the above exception, another exception occurred:\n\n"
BUSY = "RuntimeError: CUDA error: busy"


def many() -> Report:
    return report([outcome(model, seed, 10.0 + seed + n) for n, model in enumerate(MODELS) for seed in (1, 2, 3)])


def printed(shown: Report, width: int = 100) -> str:
    console = Console(width=width, file=None, record=True, quiet=False)
    with console.capture() as capture:
        console.print(table(shown))
    return capture.get()


def test_a_long_run_is_heard_of_where_no_line_can_change(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(view, "monotonic", lambda: now)
    told = StringIO()
    with ComparisonView(Console(file=told), report([outcome("asp", 1)]).comparison) as shown:
        measured = shown.starts(1, 2, Turn("asp", 1, ()))
        for now in (101.0, 159.0, 160.0, 161.0, 221.0):
            measured(Measured(0, now / 1000, now - 102))
        shown.ended(outcome("asp", 1))
        shown.starts(2, 2, Turn("asp", 2, ()))(Measured(0, 0.1, 1.0))
    assert told.getvalue().splitlines() == [
        "run 1 of 2: asp, seed 1, 60 s, accuracy 0.160 after 58.0 s",
        "run 1 of 2: asp, seed 1, 121 s, accuracy 0.221 after 119.0 s",
        "1 of 2: asp, seed 1: 0.8 after 10.0 s, and 0.900 in the end",
    ]


def test_a_row_for_each_model() -> None:
    shown = report([outcome("ddp", 1, 30.0), outcome("ddp", 2, 20.0), outcome("asp", 1, 10.0), outcome("asp", 2, 12.5)])
    assert cells(shown) == [
        ["ddp", "25.0 (20.0-30.0)", "1.00x", "90.0%", "1,234", "5.4", "50-80%", "-", "-"],
        ["asp", "11.2 (10.0-12.5)", "2.22x", "90.0%", "1,234", "5.4", "50-80%", "12", "1.2"],
    ]
    assert [len(row) for row in cells(shown)] == [len(heads(shown))] * 2


def test_never_and_failed_are_said() -> None:
    rows = [outcome("asp", 1, None, 0.5), outcome("asp", 2, 9.0), outcome("bsp", 1, error="it broke")]
    asp, bsp = cells(report(rows))
    assert asp[1:4] == ["never (9.0-never)", "-", "70.0% ±20.0"]
    assert bsp[1:] == ["failed", *["-"] * 7]


def test_of_an_interrupted_comparison_it_is_said_what_has_not_run() -> None:
    rows = [outcome("ddp", 1), outcome("asp", 1), outcome("ddp", 2)]
    shown = report(rows, planned=6, models=("ddp", "asp", "bsp"), seeds=2)
    assert [row[:2] for row in cells(shown)] == [["ddp", "10.0"], ["asp", "10.0"], ["bsp", "not run"]]
    lines = legend(shown)
    assert "Interrupted: 3 of 6 runs have ended." in lines
    assert "asp: 1 of 2 seeds" in lines
    labels = [text.get_text() for text in draw(shown).subfigs[1].axes[0].texts]
    assert labels == ["10.0", "10.0", "not run"]


def test_what_was_chosen_from_the_grid_is_shown() -> None:
    shown = report([outcome("asp", 1, value="0.2")], [outcome("asp", 0, value="0.2")], grid=GRID)
    assert heads(shown)[:2] == ["model", "--lr"]
    assert cells(shown)[0][:2] == ["asp", "0.2"]


def test_the_table_fits_a_hundred_columns_and_names_stay_readable() -> None:
    lines = printed(many()).splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("elastic_bsp ") for line in lines)


def test_a_long_name_is_not_a_title_too() -> None:
    name = "esync(rate=1.5, balance=1)"
    shown = report([outcome(name, 1), outcome("asp", 1)])
    assert heads(shown)[2] == "vs the first"
    assert any(line.startswith(f"{name} ") for line in printed(shown).splitlines())


@pytest.mark.parametrize(("waits", "for_others"), [(0.0012, "1.2 ms for others, and "), (None, "")])
def test_blocking_is_told_of_those_that_have_rounds(waits: float | None, for_others: str) -> None:
    rounds = WorkerShare(0, 100, 3.0, 1.0, 0.75, None, 0, 0, 10, 0.0042, waits)
    shown = report([outcome("asp", 1), outcome("esync", 1, workers=[rounds])])
    assert [line for line in legend(shown) if "round" in line] == [
        f"esync: at the end of a round (median of 10) workers wait up to {for_others}4.2 ms until they have new "
        "parameters; an iteration of the fastest takes 30.0 ms."
    ]


def test_bytes_that_a_codec_saves_are_told() -> None:
    halved = [WorkerShare(n, 100, 3.0, 1.0, 0.75, None, 1000, 5000, saved=1000 * n) for n in range(3)]
    shown = report([outcome("asp", 1), outcome("asp + fp16", 1, workers=halved)])
    assert [line for line in legend(shown) if "bytes" in line] == ["asp + fp16: gradients took 1/2.0 of their bytes"]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("it broke", "it broke"),
        ('  File "a.py", line 1\n    1 +\n       ^\nSyntaxError: invalid syntax\n', "SyntaxError: invalid syntax"),
        (f"{CALLS}ValueError: no\n\n{DURING}{CALLS}KeyError: 3\n", "KeyError: 3"),
        (f"{CALLS}{BUSY}\nFor debugging consider this\n  or that.\n", BUSY),
        (CALLS.rstrip(), "    main()"),
    ],
)
def test_of_a_failed_run_one_line_says_what_went_wrong(error: str, line: str) -> None:
    assert said(outcome("asp", 1, error=error), 0.8) == f"failed: {line}"


def test_without_a_target_there_is_no_time_to_it() -> None:
    shown = report([outcome("asp", 1, None)], target=None, seconds=10.0)
    assert heads(shown)[:2] == ["model", "accuracy"]
    assert len(cells(shown)[0]) == len(heads(shown))
    assert png(draw(shown)).startswith(b"\x89PNG")


def test_a_comparison_in_which_all_failed_is_drawn_without_a_warning() -> None:
    shown = report([outcome("asp", 1, error="it broke")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert png(draw(shown)).startswith(b"\x89PNG")


def test_names_in_the_picture_do_not_lie_over_each_other() -> None:
    figure = draw(many())
    figure.canvas.draw()
    times, shares = figure.subfigs[1].axes
    boxes = [label.get_window_extent() for label in times.get_yticklabels()]
    assert len(boxes) == len(MODELS)
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[n + 1 :])
    assert min(box.x0 for box in boxes) >= 0
    assert max(box.x1 for box in boxes) <= times.get_window_extent().x0
    legend = figure.subfigs[0].axes[0].get_legend()
    assert legend is not None
    assert legend.get_window_extent().x1 <= figure.bbox.x1
    assert len(shares.patches) == 4 * len(MODELS)


def test_models_that_have_failed_or_never_learnt_can_be_drawn() -> None:
    shown = report(
        [outcome("asp", 1, None, 0.1), outcome("bsp", 1, None, None, error="it broke", curve=[], workers=[])]
    )
    image = matplotlib.image.imread(BytesIO(png(draw(shown))))
    assert image.shape[1] == 1440


class Seen(HTMLParser):
    """Which tags a page has, and where they lead."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_needs_nothing_else_and_escapes_all_text() -> None:
    evil = "<script>alert(1)</script>"
    rows = [outcome("asp", 1), outcome("bsp", 1, error=f"Traceback: {evil} & more")]
    shown = report(rows, script=f"{evil}.py", slow=(f"worker 1: {evil}",), grid=GRID, own={"asp": (evil,)})
    picture = png(draw(shown))
    text = page(shown, picture)
    seen = Seen()
    seen.feed(text)
    assert "script" not in seen.tags
    assert {"html", "table", "img", "pre"} <= seen.tags
    [source] = seen.sources
    assert b64decode(source.removeprefix("data:image/png;base64,")) == picture
    assert not re.search(r"https?://", text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text
    assert "torch 2.13" in text
    assert "paceline compare --sync asp --sync bsp" in text
