"""DC-ASGD as a model: what it asks of whoever applies its gradients, and that other models can ask the same."""

from __future__ import annotations

import pytest

from paceline.sync import MODELS, ModelError, parse
from paceline.sync.compensation import Compensation
from paceline.sync.models.ssp import SSP


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("dc_asgd", Compensation(0.04)),
        ("dc_asgd(0.1)", Compensation(0.1)),
        ("dc_asgd(kind=adaptive)", Compensation(2.0, 0.95)),
        ("dc_asgd(lam=1, kind=adaptive, m=0)", Compensation(1, 0)),
        ("dc_asgd(lam=0)", None),
        ("dc_asgd(lam=0, kind=adaptive)", None),
    ],
)
def test_what_it_asks_for(expression: str, asked: Compensation | None) -> None:
    assert parse(expression).compensation == asked


def test_nobody_else_asks_for_it() -> None:
    for name, model in MODELS.items():
        for example in model.examples:
            assert (parse(example).compensation is not None) == (name == "dc_asgd")


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("dc_asgd(lam=-0.1)", "lam=-0.1 is not allowed; lam is a number from 0"),
        ("dc_asgd(lam=inf)", "lam=inf is not allowed"),
        ("dc_asgd(kind=adaptive, m=1)", "m is a number from 0, below 1"),
        ("dc_asgd(m=0.5)", "write kind=adaptive too"),
        ("dc_asgd(kind=both)", "kind is one of constant, adaptive"),
    ],
)
def test_what_cannot_be_is_told(expression: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        parse(expression)


class CompensatedSSP(SSP, frozen=True):
    """An `ssp` whose gradients are corrected too."""

    name = ""

    @property
    def compensation(self) -> Compensation:
        return Compensation(0.04)


def test_any_model_can_ask_for_it() -> None:
    assert parse(f"{__name__}:CompensatedSSP(s=2)").compensation == Compensation(0.04)
