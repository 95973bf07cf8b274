"""What is to be compared, and in which order: pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from paceline.nodes import DDP, Job, NodeError
from paceline.params.codecs import codec_of
from paceline.sync import ModelError, parse

NO_CODEC = "none"
WITH = " + "  # between a model and a codec
CODED = re.compile(r"(.+?)\s*\+\s*([a-z].*)", re.DOTALL)  # as users may write it; a number like 1e+3 is none
TRIAL = 0  # the seed by which a value of the grid is chosen; those that count begin after it


class CompareError(ValueError):
    """A comparison that cannot be as it was asked for."""


class Grid(Struct, frozen=True):
    """An option of the script, and the values of which every model gets the one that suits it."""

    option: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.option} {','.join(self.values)}"


class Comparison(Struct, frozen=True, kw_only=True):
    """All that is the same for every model, and `own`, the script's arguments that are not.

    With `seconds`, every run lasts so long. Without, it ends when the `target` is reached, or when it has not been
    after `within` seconds.
    """

    script: str
    models: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    own: dict[str, tuple[str, ...]] = {}
    workers: int = 4
    servers: int = 1
    slow: tuple[str, ...] = ()
    target: float | None = None
    seconds: float | None = None
    within: float = 300.0
    seeds: int = 1
    grid: Grid | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise CompareError("there is nothing to compare; give models with --sync, such as --sync ddp --sync asp")
        for model in self.models:
            if self.models.count(model) > 1:
                raise CompareError(f"{model} is there twice; give each model once")
        if self.target is None and self.seconds is None:
            raise CompareError("a run has no end; give an accuracy as --target, or a time as --seconds, or both")
        if self.target is not None and not 0 < self.target <= 1:
            raise CompareError(f"the target is {self.target:g}; it is a share of right answers, above 0, up to 1")
        for name, seconds in (("--seconds", self.seconds), ("--within", self.within)):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise CompareError(f"{name} is {seconds:g}; it is a number above 0")
        if self.seeds < 1:
            raise CompareError(f"--seeds is {self.seeds}; it is how often each model trains, from 1")

    @property
    def baseline(self) -> str:
        """Whom the others are compared with: `ddp` if it is there, else the first."""
        return DDP if DDP in self.models else self.models[0]

    @property
    def longest(self) -> float:
        return self.within if self.seconds is None else self.seconds

    @property
    def name(self) -> str:
        """The script without its folders."""
        return PurePath(self.script).name

    def command(self) -> str:
        """What starts it again."""
        words = ["paceline", "compare"]
        for model in self.models:
            words += ["--sync", model]
        words += ["--workers", str(self.workers), "--servers", str(self.servers)]
        for text in self.slow:
            words += ["--slow", text]
        words += [] if self.target is None else ["--target", f"{self.target:g}"]
        words += ["--within", f"{self.within:g}"] if self.seconds is None else ["--seconds", f"{self.seconds:g}"]
        words += ["--seeds", str(self.seeds)]
        words += [] if self.grid is None else ["--grid", str(self.grid)]
        for model, arguments in self.own.items():
            words += ["--with", f"{model}: {shlex.join(arguments)}"]
        return shlex.join([*words, self.script, *self.arguments])


class Turn(Struct, frozen=True):
    """One run: a model, a seed, and all the arguments of the script. `value` is the grid's, if there is one."""

    sync: str
    seed: int
    arguments: tuple[str, ...]
    value: str | None = None

    def __str__(self) -> str:
        tried = "" if self.value is None else f" with {self.value}"
        return f"{self.sync}{tried}, seed {self.seed}"


def trials(comparison: Comparison) -> list[Turn]:
    """Every model with every value of the grid, value by value."""
    if comparison.grid is None:
        return []
    return [
        _turn(comparison, model, TRIAL, value)
        for number, value in enumerate(comparison.grid.values)
        for model in rotated(comparison.models, number)
    ]


def turns(comparison: Comparison, chosen: dict[str, str]) -> Iterator[Turn]:
    """Seed by seed, all models in turn, each time another one first: what else the machine does hits all alike."""
    for number in range(comparison.seeds):
        for model in rotated(comparison.models, number):
            yield _turn(comparison, model, TRIAL + 1 + number, chosen.get(model))


def rotated(models: Sequence[str], by: int) -> list[str]:
    start = by % len(models)
    return [*models[start:], *models[:start]]


def _turn(comparison: Comparison, model: str, seed: int, value: str | None) -> Turn:
    arguments = comparison.arguments + comparison.own.get(model, ())
    if comparison.grid is not None and value is not None:
        arguments += (comparison.grid.option, value)
    return Turn(model, seed, arguments, value)


# What a user writes.


def model_of(expression: str) -> str:
    """A model as it prints itself, or `ddp`; behind it, as in `bsp + fp16`, a codec if it is to have one."""
    parts = CODED.fullmatch(expression.strip())
    sync, codec = (expression.strip(), NO_CODEC) if parts is None else parts.groups()
    try:
        sync = sync if sync == DDP else str(parse(sync))
        Job(workers=1, sync=sync, codec=codec)
    except ModelError as error:
        raise ModelError(f"{error}. See paceline models; {DDP} is torch's own") from None
    except NodeError as error:
        raise CompareError(f"{expression!r}: {error}") from None
    encodes = codec_of(codec)
    return sync if encodes is None else f"{sync}{WITH}{encodes}"


def parts_of(model: str) -> tuple[str, str]:
    """The model alone, and the codec of its gradients."""
    sync, _, codec = model.partition(WITH)
    return sync, codec or NO_CODEC


def grid_of(text: str) -> Grid:
    """`--lr 0.05,0.1,0.2`: an option of the script, and its values."""
    option, _, rest = text.strip().partition(" ")
    values = tuple(value for value in rest.strip().split(",") if value)
    if not option.startswith("-") or not values or " " in rest.strip():
        raise CompareError(f"--grid {text!r} is no option with values; write it as '--lr 0.05,0.1,0.2'")
    return Grid(option, values)


def own_of(texts: Iterable[str], models: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`ssp(s=3): --lr 0.1`: a model, and what the script is given for that one only."""
    own: dict[str, tuple[str, ...]] = {}
    for text in texts:
        expression, colon, arguments = text.rpartition(": ")
        if not colon:
            raise CompareError(f"--with {text!r} has no colon; write it as 'ssp(s=3): --lr 0.1'")
        model = model_of(expression)
        if model not in models:
            raise CompareError(f"--with {text!r}: {model} is not compared; there are {', '.join(models)}")
        own[model] = own.get(model, ()) + tuple(shlex.split(arguments))
    return own
