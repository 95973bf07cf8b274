"""What a synchronization model is: two predicates, and what they need.

A model is a frozen value. Its fields are its parameters, checked when it is made; `str(model)` is the expression that
`parse` turns back into an equal model. It decides from a `View` of the shard and changes nothing but `view.memory`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from paceline.sync.errors import ModelError

if TYPE_CHECKING:
    from paceline.sync.compensation import Compensation
    from paceline.sync.events import Pulled, Pushed, Stop
    from paceline.sync.view import View

UpdateRule = Literal["immediate", "round"]
Release = Literal["lazy", "soft"]


class Allowed:
    """What values a parameter may have: a test, and the words for it."""

    def __init__(self, words: str, test: Callable[[Any], bool]) -> None:
        self.words = words
        self.test = test


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


Count = Annotated[int, Allowed("a whole number from 1", lambda v: _whole(v) and v >= 1)]
Bound = Annotated[int, Allowed("a whole number from 0", lambda v: _whole(v) and v >= 0)]
OpenBound = Annotated[
    float, Allowed("a whole number from 0, or inf", lambda v: (_whole(v) and v >= 0) or v == math.inf)
]
Probability = Annotated[float, Allowed("a number from 0 to 1", lambda v: _number(v) and 0 <= v <= 1)]
Share = Annotated[float, Allowed("a number above 0, up to 1", lambda v: _number(v) and 0 < v <= 1)]
Seconds = Annotated[float, Allowed("seconds, a finite number from 0", lambda v: _number(v) and 0 <= v < math.inf)]


class Parameter(Struct, frozen=True):
    """One parameter of a model, for checking it and for telling people about it."""

    name: str
    words: str
    allows: Callable[[Any], bool]
    default: Any  # NODEFAULT where it must be given


class Model(Struct, frozen=True, kw_only=True):
    """The base of every synchronization model.

    Every model can be combined with partial pulling: a worker starts `tau_pull` seconds after the share `b` of its
    blocks has come, or as soon as all have.
    """

    name: ClassVar[str] = ""  # in expressions; a model that is not registered goes by its import path
    examples: ClassVar[tuple[str, ...]] = ()  # expressions to show, and to test it with
    order: ClassVar[tuple[str, ...]] = ()  # of parameters without their names, if not that of the model's own fields
    update: ClassVar[UpdateRule] = "immediate"  # how its gradients reach the parameters, unless the user says otherwise
    jumps: ClassVar[bool] = False  # does a grant take a worker that fell behind to the open round?
    intervals: ClassVar[int] = 0  # how many recent intervals of each worker it wants to see
    everywhere: ClassVar[bool] = False  # must all shards be under it, or none?
    supersteps: ClassVar[bool] = False  # does it close supersteps, of any length for each worker, instead of rounds?

    b: Share = 1.0
    tau_pull: Seconds = 0.0

    def __post_init__(self) -> None:
        for parameter in parameters(type(self)):
            value = getattr(self, parameter.name)
            if not parameter.allows(value):
                raise ModelError(
                    f"{self.label()}: {parameter.name}={show(value)} is not allowed; "
                    f"{parameter.name} is {parameter.words}"
                )
        if self.everywhere and self.b < 1:
            raise ModelError(
                f"{self.label()}: b={show(self.b)} is not allowed; under it shards tell workers more than values, "
                "so a worker waits for all blocks, and b is 1"
            )
        complaint = self.check()
        if complaint:
            raise ModelError(f"{self.label()}: {complaint}")

    # The two predicates.

    def may_pull(self, view: View, pull: Pulled) -> bool:
        """May this pull be answered now?"""
        raise NotImplementedError

    def may_close(self, view: View) -> bool:
        """May the shard close `view.clock`? As a rule: once every live worker has pushed it."""
        return view.count(view.clock) >= view.live

    # The rest has a default that fits most models.

    def check(self) -> str | None:
        """What is wrong with these parameters together, if anything."""
        return None

    @property
    def weighs(self) -> bool:
        """Does it look at the significance of gradients? Workers measure that only where it does."""
        return False

    @property
    def compensation(self) -> Compensation | None:
        """How to correct gradients for their delay, where they are applied on arrival. As a rule: not at all."""
        return None

    def memory(self, view: View) -> Any:
        """What the model starts to remember with when it comes into force, on each shard on its own."""
        return None

    def filed(self, view: View, pull: Pulled) -> int:
        """The round whose closing frees this held pull: as a rule its own."""
        return pull.iteration

    def round(self, view: View, push: Pushed) -> int:
        """The round that a gradient is summed into, where the update rule is `round`: as a rule its own."""
        return push.iteration

    def pushed(self, view: View, push: Pushed) -> None:
        """A worker has finished an iteration, in time or too late for its round; its progress counts already."""

    def closed(self, view: View) -> None:
        """Rounds have closed; the clock has moved already, and held pulls are granted next."""

    def joined(self, view: View, worker: int) -> None:
        """A worker takes part from now on."""

    def left(self, view: View, worker: int) -> None:
        """A worker no longer takes part."""

    def wake(self, view: View) -> float | None:
        """When `may_close` wants to be asked again though nothing happens."""
        return None

    def stop(self, view: View, worker: int) -> Stop | None:
        """The plan to tell a worker with its grant."""
        return None

    def waiting_for(self, view: View) -> tuple[int, tuple[int, ...]]:
        """How many workers the open round waits for, and the first few of them."""
        return view.live - view.count(view.clock), view.laggards

    # A model as text.

    @classmethod
    def label(cls) -> str:
        """The name in expressions: the registered one, or `module:Class` for a user's own."""
        return cls.name or f"{cls.__module__}:{cls.__qualname__}"

    def __str__(self) -> str:
        given = [
            f"{parameter.name}={show(value)}"
            for parameter in parameters(type(self))
            if (value := getattr(self, parameter.name)) != parameter.default
        ]
        return f"{self.label()}({', '.join(given)})" if given else self.label()


class Holding(Model, frozen=True, kw_only=True):
    """A model that lets its user choose how long a held pull waits.

    `lazy`: until everyone has finished the pull's own iteration, so that it reads fully updated parameters. `soft`:
    only until the next round closes.
    """

    release: Release = "lazy"

    def filed(self, view: View, pull: Pulled) -> int:
        return pull.iteration if self.release == "lazy" else view.clock


def unnamed(model: type[Model]) -> tuple[str, ...]:
    """The parameters that an expression may give without their names, in this order."""
    return model.order or tuple(name for name in model.__struct_fields__ if name not in Model.__struct_fields__)


@cache
def parameters(model: type[Model]) -> list[Parameter]:
    """A model's parameters; first those that an expression may give without their names."""
    hints, known = get_type_hints(model, include_extras=True), {field.name: field for field in fields(model)}
    names = dict.fromkeys([*unnamed(model), *known])
    return [_parameter(name, hints[name], known[name].default) for name in names]


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    if get_origin(hint) is Annotated:
        allowed = next((extra for extra in hint.__metadata__ if isinstance(extra, Allowed)), None)
        if allowed:
            return Parameter(name, allowed.words, allowed.test, default)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return Parameter(name, "one of " + ", ".join(choices), lambda value: value in choices, default)
    raise TypeError(f"parameter {name} needs a type that says what is allowed, such as Count, Share or a Literal")


def show(value: object) -> str:
    """A parameter's value as an expression has it."""
    return value if isinstance(value, str) else "none" if value is None else repr(value)


__all__ = ["NODEFAULT", "Model", "Parameter", "Release", "UpdateRule", "parameters", "show", "unnamed"]
