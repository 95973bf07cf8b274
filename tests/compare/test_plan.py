"""What is compared, in which order, and what cannot be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.compare.plan import (
    TRIAL,
    CompareError,
    Comparison,
    Grid,
    grid_of,
    model_of,
    own_of,
    parts_of,
    trials,
    turns,
)
from paceline.sync import ModelError

THREE = ("ddp", "asp", "ssp(s=3)")


def comparison(**settings: Any) -> Comparison:
    return Comparison(**{"script": "train.py", "models": THREE, "target": 0.8, **settings})


@given(st.integers(1, 6), st.integers(1, 7))
def test_models_take_turns_and_everyone_is_first_as_often(count: int, seeds: int) -> None:
    models = tuple(f"ssp(s={n})" for n in range(count))
    planned = list(turns(comparison(models=models, seeds=seeds), {}))
    assert Counter((turn.sync, turn.seed) for turn in planned) == Counter(
        (model, seed) for model in models for seed in range(1, seeds + 1)
    )
    assert [turn.seed for turn in planned] == sorted(turn.seed for turn in planned)
    first = Counter(turn.sync for turn in planned[::count])
    assert max(first.values()) - min(first[model] for model in models) <= 1


def test_the_grid_is_tried_with_a_seed_that_does_not_count() -> None:
    given = comparison(grid=Grid("--lr", ("0.1", "0.2")), seeds=2, own={"asp": ("--net", "cnn")}, arguments=("-v",))
    tried = trials(given)
    assert {(turn.sync, turn.value) for turn in tried} == {
        (model, value) for model in THREE for value in ("0.1", "0.2")
    }
    assert {turn.seed for turn in tried} == {TRIAL}
    counted = list(turns(given, {"asp": "0.2", "ddp": "0.1", "ssp(s=3)": "0.1"}))
    assert TRIAL not in {turn.seed for turn in counted}
    assert {turn.sync: turn.arguments for turn in counted} == {
        "ddp": ("-v", "--lr", "0.1"),
        "asp": ("-v", "--net", "cnn", "--lr", "0.2"),
        "ssp(s=3)": ("-v", "--lr", "0.1"),
    }
    assert trials(comparison()) == []


def test_ddp_is_the_baseline_where_it_is_compared() -> None:
    assert comparison(models=("asp", "ddp")).baseline == "ddp"
    assert comparison(models=("asp", "bsp")).baseline == "asp"


def test_the_command_starts_it_again() -> None:
    given = comparison(slow=("worker 3: 5x",), seeds=3, seconds=60.0, own={"asp": ("--lr", "0.1")})
    assert given.command() == (
        "paceline compare --sync ddp --sync asp --sync 'ssp(s=3)' --workers 4 --servers 1 --slow 'worker 3: 5x' "
        "--target 0.8 --seconds 60 --seeds 3 --with 'asp: --lr 0.1' train.py"
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"models": ()}, "nothing to compare"),
        ({"models": ("asp", "asp")}, "asp is there twice"),
        ({"target": None}, "a run has no end"),
        ({"target": 80.0}, "the target is 80"),
        ({"seconds": 0.0}, "--seconds is 0"),
        ({"within": float("inf")}, "--within is inf"),
        ({"seeds": 0}, "--seeds is 0"),
    ],
)
def test_what_cannot_be_compared(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(CompareError, match=words):
        comparison(**settings)


def test_what_a_user_writes() -> None:
    assert model_of(" ddp ") == "ddp"
    assert model_of("ssp(3)") == "ssp(s=3)"
    with pytest.raises(ModelError, match="ddp is torch's own"):
        model_of("spp(3)")
    assert model_of("esync(epsilon=1e+3)") == "esync(epsilon=1000.0)"
    assert grid_of("--lr 0.05,0.1") == Grid("--lr", ("0.05", "0.1"))
    assert own_of(["ssp(3): --lr 0.1 --net 'a b'", "asp: -v"], THREE) == {
        "ssp(s=3)": ("--lr", "0.1", "--net", "a b"),
        "asp": ("-v",),
    }


@pytest.mark.parametrize(
    ("text", "sync", "codec"),
    [
        ("bsp + fp16", "bsp", "fp16"),
        (" ssp(3)+top_k(0.05)\n", "ssp(s=3)", "top_k(share=0.05)"),
        ("esync(epsilon=1e+3) + one_bit", "esync(epsilon=1000.0)", "one_bit"),
        ("asp + none", "asp", "none"),
        ("ddp", "ddp", "none"),
    ],
)
def test_a_model_may_have_a_codec(text: str, sync: str, codec: str) -> None:
    model = model_of(text)
    assert parts_of(model) == (sync, codec)
    assert model_of(model) == model
    assert own_of([f"{text}: --lr 1"], [model]) == {model: ("--lr", "1")}


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("bsp + fp17", CompareError, "there is no codec 'fp17'"),
        ("bsp + top_k(share=2)", CompareError, "share=2"),
        ("ddp + fp16", CompareError, "under ddp none go there"),
        ("esync(aggregate=all_reduce) + fp16", CompareError, "none go there"),
        ("spp + fp16", ModelError, "did you mean"),
        ("+ fp16", ModelError, "is not an expression"),
        ("bsp +", ModelError, "bsp"),
    ],
)
def test_a_codec_that_cannot_be(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        model_of(text)


@pytest.mark.parametrize("text", ["", "--lr", "0.1,0.2", "--lr 0.1 0.2", "--lr ,"])
def test_a_grid_that_is_none(text: str) -> None:
    with pytest.raises(CompareError, match="is no option with values"):
        grid_of(text)


@pytest.mark.parametrize(("text", "words"), [("asp --lr 1", "has no colon"), ("bsp: --lr 1", "bsp is not compared")])
def test_arguments_of_nobody(text: str, words: str) -> None:
    with pytest.raises(CompareError, match=words):
        own_of([text], THREE)
