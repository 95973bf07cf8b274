"""Models as text: what parses, that it prints back, and what a mistake gets to read."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paceline
from paceline.sync import MODELS, Model, ModelError, Shard, parse, signature, to_table
from paceline.sync.models.base import Release
from tests.effort import cases

whole = st.integers(0, 10**6)
count = st.integers(1, 10**6)
probability = st.floats(0, 1)
release: st.SearchStrategy[Release] = st.sampled_from(["lazy", "soft"])
seconds = st.floats(0, 1e6)

MODEL_VALUES: st.SearchStrategy[Model] = st.one_of(
    st.builds(paceline.BSP, release=release),
    st.builds(paceline.ASP),
    st.builds(paceline.ASP, b=st.floats(0.01, 1), tau_pull=seconds),
    st.builds(paceline.SSP, s=whole | st.just(math.inf), release=release, b=st.floats(0.01, 1), tau_pull=seconds),
    st.builds(paceline.DCASGD, lam=st.none() | st.floats(0, 100)),
    st.builds(
        paceline.DCASGD,
        lam=st.none() | st.floats(0, 100),
        kind=st.just("adaptive"),
        m=st.none() | st.floats(0, 1, exclude_max=True),
    ),
    st.tuples(whole, whole, release).map(lambda t: paceline.DSPS(min(t[:2]), max(t[:2]), release=t[2])),
    st.tuples(whole, whole, release).map(lambda t: paceline.DSSP(min(t[:2]), max(t[:2]), release=t[2])),
    st.builds(paceline.DropStragglers, n_t=count, release=release),
    st.builds(paceline.PSSP, s=whole, c=probability, release=release, coin=st.sampled_from(["worker", "shard"])),
    st.builds(paceline.PSSP, s=whole, alpha=st.floats(1e-9, 10) | st.just("significance"), release=release),
    st.builds(
        paceline.ElasticBSP,
        R=count,
        planner=st.sampled_from(["zipline", "grid_scan", "full_grid_scan"]),
        predict=st.sampled_from(["robust", "last"]),
    ),
    st.builds(
        paceline.PSP,
        c=count,
        b=st.floats(0.01, 1),
        tau_push=seconds,
        tau_pull=seconds,
        scaling=st.sampled_from(["linear", "mean"]),
    ),
    st.builds(
        paceline.ESync,
        epsilon=seconds,
        rate=st.floats(0.01, 10),
        query=st.sampled_from(["blocking", "nonblocking"]),
        max_steps=count | st.just(math.inf),
    ),
)


@given(model=MODEL_VALUES)
@settings(max_examples=cases(500), deadline=None)
def test_printing_a_model_gives_an_expression_that_parses_to_it(model: Model) -> None:
    assert parse(str(model)) == model
    assert parse(model) is model


@given(model=MODEL_VALUES)
@settings(max_examples=cases(300), deadline=None)
def test_the_same_value_in_json_and_toml(model: Model) -> None:
    table = to_table(model)
    assert parse(json.loads(json.dumps(table, allow_nan=False))) == model
    lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
    assert parse(tomllib.loads(lines)) == model
    assert parse(tomllib.loads(f"sync = {json.dumps(str(model))}")["sync"]) == model


@pytest.mark.parametrize(
    ("expression", "model"),
    [
        ("bsp", paceline.BSP()),
        ("bsp()", paceline.BSP()),
        (" ssp( 3 ) ", paceline.SSP(s=3)),
        ("ssp(s=inf)", paceline.SSP(s=math.inf)),
        ("pssp(s=3, c=0.5)", paceline.PSSP(s=3, c=0.5)),
        ("pssp(3, 1/3)", paceline.PSSP(s=3, c=1 / 3)),
        ("pssp(s=3, alpha=significance)", paceline.PSSP(s=3, alpha="significance")),
        ("ssp(s=3, release=soft)", paceline.SSP(s=3, release="soft")),
        ("ssp(s=3, release='soft')", paceline.SSP(s=3, release="soft")),
        ("elastic_bsp", paceline.ElasticBSP()),
        ("psp(28, 0.9)", paceline.PSP(c=28, b=0.9)),
        ("psp(4, 1.0, 0, 0)", paceline.PSP(c=4)),
        ("ssp(s=3, b=0.9, tau_pull=0.01)", paceline.SSP(s=3, b=0.9, tau_pull=0.01)),
        ("ssp(3, soft, b=9/10)", paceline.SSP(s=3, release="soft", b=0.9)),
    ],
)
def test_expressions_as_people_write_them(expression: str, model: Model) -> None:
    assert parse(expression) == model


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("spp(s=3)", ["'spp'", "did you mean 'ssp'?", "elastic_bsp"]),
        ("SSP(3)", ["'SSP'", "did you mean 'ssp'?"]),
        ("elasticbsp", ["did you mean 'elastic_bsp'?"]),
        ("ssp", ["ssp needs s", "whole number", "ssp(s, release=lazy)"]),
        ("ssp(s=-1)", ["s=-1 is not allowed", "whole number from 0, or inf"]),
        ("ssp(s=1.5)", ["s=1.5", "whole number"]),
        ("ssp(s=True)", ["s=True"]),
        ("ssp(s=soft)", ["s=soft"]),
        ("ssp(s=3, relase=soft)", ["no parameter 'relase'", "did you mean 'release'?"]),
        ("ssp(s=3, release=sofd)", ["release=sofd", "one of lazy, soft"]),
        ("ssp(3, 4)", ["release=4"]),
        ("ssp(3, soft, 5)", ["at most 2", "ssp(s, release=lazy)"]),
        ("ssp(3, s=4)", ["s is given twice"]),
        ("ssp(s=3, s=4)", ["s is given twice"]),
        ("pssp(s=3)", ["either c (constant) or alpha (dynamic)"]),
        ("pssp(s=3, c=0.5, alpha=1)", ["either c"]),
        ("pssp(s=3, c=2)", ["c=2", "from 0 to 1"]),
        ("pssp(s=3, alpha=nan)", ["alpha=nan"]),
        ("dsps(s_min=4, s_max=1)", ["s_min=4 is above s_max=1"]),
        ("dssp(s_low=4, s_high=1)", ["s_low=4 is above s_high=1"]),
        ("drop(n_t=0)", ["n_t=0", "from 1"]),
        ("psp(c=3, b=0)", ["b=0", "above 0"]),
        ("psp(c=3, tau_push=-1)", ["tau_push=-1"]),
        ("psp(c=3, tau_push=inf)", ["tau_push=inf"]),
        ("bsp(b=1.5)", ["b=1.5", "above 0, up to 1"]),
        ("asp(0.9)", ["at most 0", "asp"]),
        ("elastic_bsp(b=0.9)", ["b=0.9 is not allowed", "waits for all blocks"]),
        ("esync(b=0.5)", ["b=0.5 is not allowed"]),
        ("elastic_bsp(R=0)", ["R=0"]),
        ("elastic_bsp(planner=zip)", ["planner=zip", "zipline"]),
        ("esync(max_steps=0)", ["max_steps=0"]),
        ("esync(momentum=1)", ["momentum=1", "below 1"]),
        ("esync(momentum=-0.1)", ["momentum=-0.1", "from 0"]),
        ("ssp(", ["not an expression"]),
        ("ssp)", ["not an expression"]),
        ("", ["not an expression"]),
        ("ssp(s=3) + pull(b=0.9)", ["cannot read the parameters"]),
        ("ssp(s=(lambda: 3)())", ["not a value"]),
        ("ssp(s=__import__('os').getpid())", ["not a value"]),
        ("ssp(**{'s': 3})", ["cannot read the parameters"]),
        ("ssp(s=1/0)", ["not a value"]),
        ("ssp(s=" + "(" * 5000 + ")" * 5000 + ")", ["cannot read the parameters"]),
        ("ssp(s=\0)", ["cannot read the parameters"]),
        ("no.such.module:Model", ["cannot import 'no.such.module'"]),
        ("paceline.sync.shard:Shart", ["has no 'Shart'", "did you mean 'Shard'?"]),
        ("paceline.sync.shard:Shard", ["is not a model", "paceline.sync.Model"]),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed_and_the_nearest_spelling(expression: str, says: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        parse(expression)
    for words in says:
        assert words in str(caught.value)


@pytest.mark.parametrize("value", [None, 3, ["ssp"], {"s": 3}, {"model": 3}, {"model": "ssp", "s": "three"}])
def test_what_is_no_model_at_all_is_told_so(value: object) -> None:
    with pytest.raises(ModelError):
        parse(value)  # type: ignore[arg-type]


@given(text=st.text(max_size=40) | st.from_regex(r"\A(ssp|pssp|psp)\([a-z0-9=,. ()'/*-]{0,30}\)\Z"))
@settings(max_examples=cases(500), deadline=None)
def test_any_text_is_a_model_or_a_model_error(text: str) -> None:
    try:
        model = parse(text)
    except ModelError as error:
        assert str(error)
    else:
        assert parse(str(model)) == model


def test_values_made_in_python_are_checked_too() -> None:
    with pytest.raises(ModelError, match="s=-1"):
        paceline.SSP(s=-1)
    with pytest.raises(ModelError, match="either c"):
        paceline.PSSP(s=1)
    with pytest.raises(AttributeError):
        paceline.SSP(s=1).s = 2  # type: ignore[misc]


def test_every_model_has_a_signature_a_name_and_a_sentence() -> None:
    for name, model in MODELS.items():
        assert signature(model).startswith(name)
        assert model.__doc__


def test_pssp_tells_which_ssp_has_the_same_regret_bound() -> None:
    """The four pairs of the paper's figure 9."""
    for c, s in ((1 / 2, 4), (1 / 3, 5), (1 / 5, 7), (1 / 10, 12)):
        assert paceline.PSSP(s=3, c=c).same_regret_as == pytest.approx(s)
    assert paceline.PSSP(s=3, alpha=1.0).same_regret_as == pytest.approx(4)
    assert paceline.PSSP(s=3, c=0).same_regret_as == math.inf
    assert paceline.PSSP(s=3, alpha="significance").same_regret_as is None


OWN_MODEL = '''
from typing import ClassVar
from paceline.sync.models.base import Count, Model

class EveryOther(Model, frozen=True):
    """Workers wait at every `k`-th iteration only."""

    k: Count = 2

    def may_pull(self, view, pull):
        return pull.iteration % self.k != self.k - 1 or pull.iteration < view.clock
'''


def test_a_users_own_model_is_found_by_its_import_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    model = parse("my_models:EveryOther(k=3)")
    assert str(model) == "my_models:EveryOther(k=3)"
    assert parse(to_table(model)) == model
    assert str(parse("my_models:EveryOther(3, b=0.9)")) == "my_models:EveryOther(k=3, b=0.9)"
    shard = Shard(model, 2)
    assert shard.model == model
    with pytest.raises(ModelError, match="k=0"):
        parse("my_models:EveryOther(k=0)")
    sys.modules.pop("my_models")
