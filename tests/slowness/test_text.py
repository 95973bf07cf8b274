"""Slownesses as text: what parses, that it prints back, and what a mistake gets to read."""

from __future__ import annotations

import math
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.slowness import Lognormal, Plus, Role, Slowness, SlownessError, Times, parse
from paceline.slowness.values import MOST_SECONDS, MOST_SIGMA, MOST_TIMES
from tests.effort import cases

ROLES: st.SearchStrategy[Role] = st.sampled_from(["worker", "server"])
seconds = st.floats(0, MOST_SECONDS) | st.integers(0, 2000).map(float) | st.integers(0, 2000).map(lambda ms: ms / 1000)
factors = st.floats(1, MOST_TIMES) | st.integers(1, 20).map(float)
spans = st.lists(st.integers(0, 50), unique=True, max_size=6).map(sorted)


def a_range(kind: type[Times] | type[Plus], values: st.SearchStrategy[float]) -> st.SearchStrategy[Times | Plus]:
    return st.tuples(values, values).map(lambda two: kind(min(two), max(two))) | values.map(lambda one: kind(one, one))


def in_spans(numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Each number alone, or the two of a pair as ends; 4 apart, so that no two of them touch."""
    ends = [4 * number for number in numbers]
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    return tuple(pairs) if len(ends) % 2 == 0 else (*pairs, (ends[-1], ends[-1]))


@st.composite
def slownesses(draw: st.DrawFn) -> Slowness:
    every = draw(st.none() | st.floats(0.01, MOST_SECONDS))
    lasts = draw(st.none() | st.floats(0.01, MOST_SECONDS)) if every is None else max(every / 3, 1e-3)
    return Slowness(
        role=draw(ROLES),
        how=draw(a_range(Times, factors) | a_range(Plus, seconds) | st.builds(Lognormal, st.floats(0, MOST_SIGMA))),
        nodes=in_spans(draw(spans)),
        percent=draw(st.floats(0, 100)),
        start=draw(seconds),
        lasts=lasts,
        every=every,
    )


@given(slowness=slownesses())
@settings(max_examples=cases(500), deadline=None)
def test_printing_a_slowness_gives_a_text_that_parses_to_it(slowness: Slowness) -> None:
    assert parse(str(slowness)) == slowness
    assert parse(slowness) is slowness


@given(slowness=slownesses())
@settings(max_examples=cases(200), deadline=None)
def test_the_same_value_in_json(slowness: Slowness) -> None:
    assert msgspec.json.decode(msgspec.json.encode(slowness), type=Slowness) == slowness


@pytest.mark.parametrize(
    ("text", "slowness"),
    [
        ("worker 3: 5x", Slowness(role="worker", nodes=((3, 3),), how=Times(5, 5))),
        ("worker 1: +50ms", Slowness(role="worker", nodes=((1, 1),), how=Plus(0.05, 0.05))),
        ("server 0: 0.16% +4s", Slowness(role="server", nodes=((0, 0),), percent=0.16, how=Plus(4, 4))),
        (
            "worker 2: 5x for 10s every 60s",
            Slowness(role="worker", nodes=((2, 2),), how=Times(5, 5), lasts=10, every=60),
        ),
        ("worker 2: 5x from 2m", Slowness(role="worker", nodes=((2, 2),), how=Times(5, 5), start=120)),
        ("worker 0: 1x-5x", Slowness(role="worker", nodes=((0, 0),), how=Times(1, 5))),
        ("worker 0: +10ms-1.5s", Slowness(role="worker", nodes=((0, 0),), how=Plus(0.01, 1.5))),
        ("worker 0: lognormal 0.5", Slowness(role="worker", nodes=((0, 0),), how=Lognormal(0.5))),
        ("workers 2-3: 3x", Slowness(role="worker", nodes=((2, 3),), how=Times(3, 3))),
        ("workers 0,2-4: 3x", Slowness(role="worker", nodes=((0, 0), (2, 4)), how=Times(3, 3))),
        ("worker *: 3x", Slowness(role="worker", how=Times(3, 3))),
        ("server *: 3x", Slowness(role="server", how=Times(3, 3))),
    ],
)
def test_texts_as_people_write_them_print_back_as_they_are(text: str, slowness: Slowness) -> None:
    assert parse(text) == slowness
    assert str(slowness) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("worker 2,3: 3x", "workers 2-3: 3x"),
        (" servers  4 , 1 , 2-3 :3x ", "servers 1-4: 3x"),
        ("worker 1: 5.0x-5x", "worker 1: 5x"),
        ("worker 1: 100% +0.5m", "worker 1: +30s"),
        ("worker 1: 5x every 60s for 10s", "worker 1: 5x for 10s every 60s"),
        ("worker 1: 5x from 0s", "worker 1: 5x"),
    ],
)
def test_other_ways_to_write_the_same(text: str, same: str) -> None:
    assert str(parse(text)) == same


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ["''", "no colon", "'worker 3: 5x'"]),
        ("   ", ["no colon"]),
        (":", ["'' is nobody"]),
        ("worker 3 5x", ["no colon", "did you mean 'worker 3: 5x'?"]),
        ("wroker 3: 5x", ["'wroker 3' is nobody", "worker, workers, server", "did you mean 'worker 3: 5x'?"]),
        ("Server 3: 5X", ["did you mean 'server 3: 5x'?"]),
        ("worker3: 5x", ["did you mean 'worker 3: 5x'?"]),
        ("coordinator 0: 5x", ["'coordinator 0' is nobody"]),
        ("worker: 5x", ["'' is no worker's number", "* for all"]),
        ("worker -1: 5x", ["'-1' is no worker's number"]),
        ("worker 1.5: 5x", ["'1.5' is no worker's number"]),
        ("workers 3-2: 5x", ["'3-2' is no worker's number", "2-3"]),
        ("worker 1000000: 5x", ["'1000000' is no worker's number"]),
        ("worker 3:", ["'' does not say how slow", "'lognormal 0.5'"]),
        ("worker 3: 5", ["'5' does not say how slow", "did you mean 'worker 3: 5x'?"]),
        ("worker 3: x5", ["did you mean 'worker 3: 5x'?"]),
        ("worker 3: 5 times", ["did you mean 'worker 3: 5x'?"]),
        ("worker 3: 1-5x", ["did you mean 'worker 3: 1x-5x'?"]),
        ("worker 3: 50ms", ["did you mean 'worker 3: +50ms'?"]),
        ("worker 3: + 5 sec", ["did you mean 'worker 3: +5s'?"]),
        ("worker 3: +5min", ["units are ms, s, m", "did you mean 'worker 3: +5m'?"]),
        ("worker 3: +50", ["'+50' does not say how slow", "units are ms, s, m"]),
        ("worker 3: +50us", ["'+50us' does not say how slow", "units are ms, s, m"]),
        ("worker 3: -5x", ["'-5x' does not say how slow"]),
        ("worker 3: +-5s", ["'+-5s' does not say how slow"]),
        ("worker 3: nanx", ["'nanx' does not say how slow"]),
        ("worker 3: infx", ["'infx' does not say how slow"]),
        ("worker 3: 0x", ["a factor of 0", "from 1 to 10000"]),
        ("worker 3: 0.5x", ["a factor of 0.5", "nothing can be made faster"]),
        ("worker 3: 1e999x", ["a factor of inf"]),
        ("worker 3: 10001x", ["a factor of 10001"]),
        ("worker 3: 5x-1x", ["5x-1x runs backwards"]),
        ("worker 3: +1s-50ms", ["+1s-50ms runs backwards"]),
        ("worker 3: +86401s", ["a delay of 86401", "to 86400 seconds"]),
        ("worker 3: 101% 5x", ["a probability of 101", "from 0 to 100 percent"]),
        ("worker 3: nan% 5x", ["'nan%' is no probability"]),
        ("worker 3: 10%", ["'' does not say how slow"]),
        ("server 0: 0.16 +4s", ["did you mean 'server 0: 0.16% +4s'?"]),
        ("server 0: 0.16 percent +4s", ["did you mean 'server 0: 0.16% +4s'?"]),
        ("worker 3: lognormal", ["'' is no sigma"]),
        ("worker 3: lognormal nan", ["'nan' is no sigma"]),
        ("worker 3: lognormal -1", ["'-1' is no sigma"]),
        ("worker 3: lognormal 4", ["a sigma of 4", "from 0 to 3"]),
        ("worker 3: lognromal(0.5)", ["did you mean 'worker 3: lognormal 0.5'?"]),
        ("worker 3: 5x for", ["for '' is no duration"]),
        ("worker 3: 5x for 10", ["for '10' is no duration", "ms, s, m"]),
        ("worker 3: 5x for 0s", ["'for' of 0", "from 0.001"]),
        ("worker 3: 5x from 90000s", ["'from' of 90000"]),
        ("worker 3: 5x every 60s", ["every 60s needs a 'for' that is shorter"]),
        ("worker 3: 5x for 60s every 60s", ["every 60s needs a 'for' that is shorter"]),
        ("worker 3: 5x for 1s for 2s", ["'for 2s' is too much"]),
        ("worker 3: 5x for 10s evry 60s", ["'evry 60s' is too much", "did you mean 'worker 3: 5x for 10s every 60s'?"]),
        ("worker 3: 5x +50ms", ["'+50ms' is too much"]),
        ("worker 3: 5x: 6x", ["'5x:' does not say how slow"]),
        ("worker " + "9" * 5000 + ": 5x", ["..."]),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed_and_the_nearest_spelling(text: str, says: list[str]) -> None:
    with pytest.raises(SlownessError) as caught:
        parse(text)
    for words in says:
        assert words in str(caught.value)
    assert len(str(caught.value)) < 400 or len(text) > 1000


@given(
    text=st.text(max_size=40)
    | st.from_regex(r"\A(worker|srevers?) ?[0-9,*-]{0,4}:? [0-9a-z+.% -]{0,12}( (for|evry) [0-9]{1,3}(s|sec))?\Z")
)
@settings(max_examples=cases(500), deadline=None)
def test_any_text_is_a_slowness_or_an_error_whose_suggestion_is_right(text: str) -> None:
    try:
        slowness = parse(text)
    except SlownessError as error:
        suggestion = re.search(r"did you mean '([^']*)'\?\Z", str(error))
        assert suggestion is None or str(parse(suggestion[1])) == suggestion[1]
    else:
        assert parse(str(slowness)) == slowness


@pytest.mark.parametrize("value", [None, 3, ["worker 3: 5x"], {"role": "worker"}])
def test_what_is_no_text_at_all_is_told_so(value: object) -> None:
    with pytest.raises(SlownessError, match="is not a slowness"):
        parse(value)  # type: ignore[arg-type]


def test_values_made_in_python_are_checked_too() -> None:
    with pytest.raises(SlownessError, match="a factor of nan"):
        Times(math.nan, 2)
    with pytest.raises(SlownessError, match="a factor of nan"):
        Times(2, math.nan)
    with pytest.raises(SlownessError, match="a factor of True"):
        Times(True, True)
    with pytest.raises(SlownessError, match="a delay of '4s'"):
        Plus("4s", "4s")  # type: ignore[arg-type]
    with pytest.raises(SlownessError, match="'wroker' is no role"):
        Slowness(role="wroker", how=Times(2, 2))  # type: ignore[arg-type]
    for nodes in (((3, 2),), ((2, 3), (4, 5)), ((4, 5), (1, 2)), ((-1, 0),), ((0.5, 1),)):
        with pytest.raises(SlownessError, match="cannot be"):
            Slowness(role="worker", nodes=nodes, how=Times(2, 2))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        parse("worker 3: 5x").percent = 3  # type: ignore[misc]


def test_json_is_checked_too() -> None:
    good = msgspec.json.encode(parse("worker 3: 5x"))
    with pytest.raises(msgspec.ValidationError, match=r"a factor of 0\.5"):
        msgspec.json.decode(good.replace(b"5.0", b"0.5"), type=Slowness)
