"""Models as text and data: `pssp(s=3, c=0.5)`, and `{"model": "pssp", "s": 3, "c": 0.5}` in TOML and JSON.

Parameters may go without their names, in the order of the model's fields: `ssp(3)`. A user's own model is named by its
import path, `my_package.my_module:MyModel(s=3)`; it is imported here, never sent. What every model has goes by its name
only: `ssp(3, b=0.9)`.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from msgspec import NODEFAULT

from paceline.sync import models
from paceline.sync.errors import ModelError
from paceline.sync.models.base import Model, parameters, show, unnamed

MODELS: dict[str, type[Model]] = {
    model.name: model
    for model in vars(models).values()
    if isinstance(model, type) and issubclass(model, Model) and model.name
}

_CALL = re.compile(r"\s*([A-Za-z_][\w.]*(?::[A-Za-z_]\w*)?)\s*(?:\((.*)\))?\s*", re.DOTALL)


def parse(expression: str | Mapping[str, Any] | Model) -> Model:
    """The model that an expression, or a table with the key `model`, stands for. A model stands for itself."""
    if isinstance(expression, Model):
        return expression
    if isinstance(expression, Mapping):
        return _from_table(expression)
    if not isinstance(expression, str):
        raise ModelError(f"{expression!r} is not a model; write an expression such as 'ssp(s=3)'")
    return _from_text(expression)


@lru_cache(1024)
def _from_text(expression: str) -> Model:
    """Read once each: Python 3.11's parser cannot stand several threads at a time, and nodes ask again and again."""
    match = _CALL.fullmatch(expression)
    if match is None:
        raise ModelError(f"{expression!r} is not an expression; write a name with parameters, such as 'ssp(s=3)'")
    name, arguments = match.groups()
    model = _find(name)
    return _make(model, *_arguments(model, arguments or ""))


def to_table(model: Model) -> dict[str, Any]:
    """A model as plain data for TOML or JSON; `parse` takes it back. JSON has no infinity, so that is the text inf."""
    table: dict[str, Any] = {"model": model.label()}
    for parameter in parameters(type(model)):
        value = getattr(model, parameter.name)
        if value != parameter.default:
            table[parameter.name] = "inf" if value == math.inf else value
    return table


def signature(model: type[Model]) -> str:
    """How to write a model, such as `ssp(s, release=lazy)`; without what every model has."""
    known = [parameter for parameter in parameters(model) if parameter.name in unnamed(model)]
    given = [p.name if p.default is NODEFAULT else f"{p.name}={show(p.default)}" for p in known]
    return f"{model.label()}({', '.join(given)})" if given else model.label()


def _from_table(table: Mapping[str, Any]) -> Model:
    name = table.get("model")
    if not isinstance(name, str):
        raise ModelError(f"{dict(table)!r} names no model; it needs the key 'model', such as model = \"ssp\"")
    named = {key: math.inf if value == "inf" else value for key, value in table.items() if key != "model"}
    return _make(_find(name), [], named)


def _find(name: str) -> type[Model]:
    if ":" in name:
        return _import(name)
    model = MODELS.get(name)
    if model is None:
        close = _nearest(name, MODELS)
        raise ModelError(f"there is no model {name!r}{close}; there are {', '.join(sorted(MODELS))}")
    return model


def _import(path: str) -> type[Model]:
    module_name, _, class_name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ModelError(f"cannot import {module_name!r} for the model {path!r}: {error}") from error
    model = getattr(module, class_name, None)
    if model is None:
        close = _nearest(class_name, vars(module))
        raise ModelError(f"the module {module_name!r} has no {class_name!r}{close}")
    if not (isinstance(model, type) and issubclass(model, Model)):
        raise ModelError(f"{path!r} is not a model; derive it from paceline.sync.Model")
    return model


def _arguments(model: type[Model], text: str) -> tuple[list[Any], dict[str, Any]]:
    """What stands between the brackets, read as literals only; nothing is evaluated."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    if not isinstance(call, ast.Call) or any(keyword.arg is None for keyword in call.keywords):
        raise ModelError(f"cannot read the parameters ({text}); write {signature(model)}")
    named: dict[str, Any] = {}
    for keyword in call.keywords:
        assert keyword.arg is not None
        if keyword.arg in named:
            raise ModelError(f"{model.label()}: {keyword.arg} is given twice")
        named[keyword.arg] = _literal(model, keyword.value)
    return [_literal(model, argument) for argument in call.args], named


def _literal(model: type[Model], node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id="inf"):
            return math.inf
        case ast.Name(id=name):
            return name
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.BinOp(
            left=ast.Constant(value=int() | float() as top),
            op=ast.Div(),
            right=ast.Constant(value=int() | float() as by),
        ) if by:
            return top / by
    raise ModelError(
        f"{ast.unparse(node)!r} is not a value that {model.label()} can have; "
        f"write numbers, fractions such as 1/3, inf or names: {signature(model)}"
    )


def _make(model: type[Model], positional: list[Any], named: dict[str, Any]) -> Model:
    known = {parameter.name: parameter for parameter in parameters(model)}
    places = unnamed(model)
    if len(positional) > len(places):
        raise ModelError(
            f"{model.label()} takes at most {len(places)} parameters without their names: {signature(model)}"
        )
    values = dict(zip(places, positional, strict=False))
    for name, value in named.items():
        if name not in known:
            raise ModelError(
                f"{model.label()} has no parameter {name!r}{_nearest(name, known)}; it is {signature(model)}"
            )
        if name in values:
            raise ModelError(f"{model.label()}: {name} is given twice")
        values[name] = value
    for parameter in known.values():
        if parameter.default is NODEFAULT and parameter.name not in values:
            raise ModelError(f"{model.label()} needs {parameter.name}, {parameter.words}; it is {signature(model)}")
    return model(**values)


def _nearest(name: str, names: Iterable[str]) -> str:
    close = get_close_matches(name.lower(), list(names), n=1)
    return f", did you mean {close[0]!r}?" if close else ""
