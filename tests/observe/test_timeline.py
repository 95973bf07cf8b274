"""The terminal's picture: right cell by cell, and readable at any width and without colour."""

from __future__ import annotations

from io import BytesIO, StringIO, TextIOWrapper

import pytest
from rich.console import Console
from rich.text import Text

from paceline.observe import Compared, draw, words
from paceline.observe.timeline import ASCII, FANCY, Layout, bar, block, cells
from paceline.sim import simulate
from paceline.sync import MODELS, Model, Pulled, View, parse

SHOWN = ("bsp", "ssp(s=3)", "pssp(s=3, c=0.5, release=soft)", "drop(n_t=3)", "elastic_bsp", "esync", "asp")
WORDS = {
    "bsp": "everyone waits for the slowest",
    "ssp(s=0)": "everyone waits for the slowest",
    "ssp(s=1)": "may run 1 iteration ahead; then it waits until all have caught up",
    "ssp(s=7, release=soft)": "may run 7 iterations ahead; then it waits until the slowest moves on",
    "ssp(s=inf)": "nobody ever waits",
    "asp": "nobody ever waits",
    "dsps(s_min=1, s_max=9)": "from 1 to 9",
    "dssp(s_low=2, s_high=8)": "who is 2 ahead may go on, up to 8",
    "drop(n_t=5)": "the first 5 gradients",
    "pssp(s=4, c=0.25)": "from 4 ahead on a coin decides: it waits with probability 0.25",
    "pssp(s=4, alpha=0.5)": "from 4 ahead on it may wait, likelier the further it is ahead",
    "elastic_bsp(R=9)": "up to 9 iterations ahead",
    "psp(c=3)": "a round takes 3 gradients; the rest is thrown away",
    "psp(c=3, tau_push=0.5)": "3 gradients, and what comes in 0.5 s more",
    "psp(c=3, b=0.75)": "75% of the blocks suffice",
    "esync": "local iterations",
}


def picture(width: int, models: tuple[str, ...] = SHOWN, *, color: bool = False, latency: float = 0.0) -> str:
    def run(model: str, until: float) -> Compared:
        base = simulate("bsp", (1, 1.2, 1.5, 4), until=until, jitter=0.1, latency=latency)
        timeline = simulate(model, (1, 1.2, 1.5, 4), until=until, jitter=0.1, latency=latency)
        return Compared(parse(model), timeline, timeline.against(base), None)

    out = StringIO()
    console = Console(file=out, width=width, force_terminal=color, color_system="standard" if color else None)
    draw(console, [run(model, 24) for model in models], 480)
    return out.getvalue()


def test_a_bar_has_a_cell_for_each_part_of_the_time() -> None:
    run = simulate("bsp", (1, 1, 3), until=9)
    assert [bar(lane, 9, 18, FANCY).plain for lane in run.lanes] == [
        "██·2··▒▒·2··██·2··",
        "██·2··▒▒·2··██·2··",
        "██████▒▒▒▒▒▒██████",
    ]
    assert bar(run.lanes[0], 9, 18, ASCII).plain == "##.2..==.2..##.2.."


def test_wasted_work_and_messages_have_characters_of_their_own() -> None:
    run = simulate("drop(n_t=2)", (1, 1, 3), until=9)
    assert bar(run.lanes[2], 9, 18, FANCY).plain == "xxxxxxXXXXXXxxxxxx"
    sent = simulate("asp", (1,), until=6, latency=0.5)
    assert bar(sent.lanes[0], 6, 12, FANCY).plain == "--██--▒▒--██"


def test_a_name_that_does_not_fit_is_left_out() -> None:
    run = simulate("bsp", (1,) * 11 + (3,), until=3)
    assert run.lanes[0].spans[1].waiting_for == (11,)
    assert bar(run.lanes[0], 3, 9, FANCY).plain == "███··11··"
    assert bar(run.lanes[0], 3, 2, FANCY).plain == "█·"


def test_each_cell_goes_to_what_took_most_of_it() -> None:
    lane = simulate("bsp", (1, 4), until=4).lanes[0]
    assert [span.kind for span in cells(lane.spans, 4, 3)] == ["computing", "waiting", "waiting"]
    assert [span.kind for span in cells(lane.spans, 4, 1)] == ["waiting"]


def test_whole_rounds_are_called_so_and_compared_with_nobody_s_iterations() -> None:
    timeline = simulate("bsp", (1, 3), until=9)
    [of_iterations, of_rounds] = (
        [line.plain for line in block(run, ["a", "b"], Layout(60, 1, [timeline]), FANCY)]
        for run in (Compared(parse("esync"), timeline, 1.5, None, whole_rounds=whole) for whole in (False, True))
    )
    assert of_iterations[-1].startswith("6 iterations · 1.50x bsp · ")
    assert " it " in of_iterations[-2]
    assert of_rounds[-1].startswith("3 rounds · ")
    assert "bsp" not in of_rounds[-1]
    assert " rd " in of_rounds[-2]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
@pytest.mark.parametrize("latency", [0.0, 0.2])
def test_no_line_is_longer_than_the_console(width: int, latency: float) -> None:
    lines = picture(width, latency=latency).splitlines()
    assert max(map(len, lines)) <= width
    bars = [line for line in lines if line.startswith("worker ")]
    assert len(bars) == 4 * len(SHOWN)
    assert {len(line) for line in bars} == {width}


def test_the_picture_says_who_is_waited_for_and_what_it_costs() -> None:
    text = picture(80)
    bsp = text[text.index("bsp: everyone") : text.index("ssp(s=3):")].splitlines()
    assert all("·3·" in line for line in bsp[1:4])
    assert "·" not in bsp[4]
    assert bsp[5] == "24 iterations · 1.00x bsp · 18 held pulls · mean staleness 0.0 · 0 dropped"
    assert text.count("shade changes with every iteration") == 1
    assert "More iterations are not more accuracy" in " ".join(text.split())


def test_the_table_has_the_models_in_the_order_given_with_the_ratio_to_bsp() -> None:
    table = picture(100, ("asp", "bsp", "drop(n_t=3)")).rpartition("dropped\n")[2].splitlines()
    assert [line.split()[:3] for line in table[:3]] == [
        ["asp", "64", "2.67x"],
        ["bsp", "24", "1.00x"],
        ["drop(n_t=3)", "53", "1.96x"],
    ]


def test_the_legend_explains_only_what_occurs() -> None:
    assert "in vain" not in picture(80, ("bsp",))
    assert "in vain" in picture(80, ("bsp", "drop(n_t=2)"))
    assert "messages under way" not in picture(80, ("bsp",))
    assert "messages under way" in picture(80, ("bsp",), latency=0.5)


def test_colour_only_adds_to_the_characters() -> None:
    plain, coloured = picture(80), picture(80, color=True)
    assert "\x1b" not in plain
    assert "\x1b[32m" in coloured
    assert "\x1b[31m" in coloured
    assert Text.from_ansi(coloured).plain.split() == plain.split()


def test_the_time_stands_above_its_cell() -> None:
    lines = picture(100, ("bsp",)).splitlines()
    at = next(index for index, line in enumerate(lines) if line.lstrip().startswith("0s"))
    left = lines[at + 2].index("│") + 1
    width = lines[at + 2].rindex("│") - left
    for time in (0, 5, 10, 15, 20):
        assert lines[at].index(f" {time}s") + 1 == left + round(time * width / 24)


def test_a_terminal_without_unicode_gets_ascii() -> None:
    raw = BytesIO()
    timeline = simulate("drop(n_t=2)", (1, 1, 3), until=9)
    file = TextIOWrapper(raw, encoding="ascii")
    draw(Console(file=file, width=80), [Compared(parse("drop(n_t=2)"), timeline, None, None)], 180)
    file.flush()
    assert "######" in raw.getvalue().decode("ascii")


@pytest.mark.parametrize(("model", "said"), WORDS.items())
def test_words_have_the_model_s_own_numbers_and_fit_a_line(model: str, said: str) -> None:
    assert said in words(parse(model))
    assert len(words(parse(model))) <= 80


def test_every_model_has_words() -> None:
    for model in MODELS.values():
        for example in model.examples:
            assert words(parse(example)) not in ("", "a model of your own")


class Mine(Model, frozen=True):
    """Lets `everyone` go
    at once.

    The rest is for readers of the code.
    """

    def may_pull(self, view: View, pull: Pulled) -> bool:
        return True


def test_a_user_s_own_model_is_told_by_its_docstring() -> None:
    assert words(Mine()) == "Lets everyone go at once."
