"""Codecs as text: `fp16`, `top_k(share=0.001, momentum=0.9)`. The word `none` stands for no codec."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from paceline.params.codecs.base import Codec, CodecError
from paceline.params.codecs.one_bit import OneBit
from paceline.params.codecs.rounded import BF16, FP16
from paceline.params.codecs.top_k import TopK
from paceline.params.optimizer import nearest

CODECS: dict[str, type[Codec]] = {codec.name: codec for codec in (FP16, BF16, OneBit, TopK)}
NONE = "none"

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)


@lru_cache(1024)
def codec_of(expression: str) -> Codec | None:
    """The codec that an expression stands for. None: gradients travel as they are."""
    match = _CALL.fullmatch(expression)
    if match is None:
        raise CodecError(f"{expression!r} is not a codec; write a name with parameters, such as {TopK.signature()!r}")
    name, arguments = match.groups()
    if name == NONE and not (arguments or "").strip():
        return None
    codec = CODECS.get(name)
    if codec is None:
        known = (NONE, *CODECS)
        raise CodecError(f"there is no codec {name!r}{nearest(name, known)}; there are {', '.join(known)}")
    return codec(**_arguments(codec, arguments or ""))


def _arguments(codec: type[Codec], text: str) -> dict[str, float]:
    """What stands between the brackets, read as numbers only; nothing is evaluated."""
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        call = None
    known = codec.parameters()
    if not isinstance(call, ast.Call) or len(call.args) > len(known):
        raise CodecError(f"{codec.name}: cannot read the parameters ({text}); write {codec.signature()}")
    values = dict(zip(known, (_number(codec, argument) for argument in call.args), strict=False))
    for keyword in call.keywords:
        name = keyword.arg or "**"
        if name not in known:
            raise CodecError(f"{codec.name} has no parameter {name!r}{nearest(name, known)}; it is {codec.signature()}")
        if name in values:
            raise CodecError(f"{codec.name}: {name} is given twice")
        values[name] = _number(codec, keyword.value)
    return values


def _number(codec: type[Codec], node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
    raise CodecError(f"{codec.name}: {ast.unparse(node)!r} is not a number; write {codec.signature()}")
