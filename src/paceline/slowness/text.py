"""Slownesses as text: read strictly, and a mistake is answered with the nearest text that is right."""

from __future__ import annotations

import re
from difflib import get_close_matches

from paceline.slowness.values import (
    MOST_NODES,
    UNITS,
    Lognormal,
    Plus,
    Role,
    Slowness,
    SlownessError,
    Times,
    in_seconds,
)

WHO: dict[str, Role] = {"worker": "worker", "workers": "worker", "server": "server", "servers": "server"}
WHEN = ("from", "for", "every")
EXAMPLES = "'5x', '1x-5x', '+50ms', '0.16% +4s' or 'lognormal 0.5'"

_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_PERCENT = re.compile(rf"({_NUMBER})%")
_TIMES = re.compile(rf"({_NUMBER})x(?:-({_NUMBER})x)?")
_PLUS = re.compile(rf"\+({_NUMBER})({'|'.join(UNITS)})(?:-({_NUMBER})({'|'.join(UNITS)}))?")
_DURATION = re.compile(rf"({_NUMBER})({'|'.join(UNITS)})")
_NODES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def parse(text: str | Slowness) -> Slowness:
    """The slowness that a text stands for. A slowness stands for itself."""
    if isinstance(text, Slowness):
        return text
    if not isinstance(text, str):
        raise SlownessError(f"{text!r} is not a slowness; write a text such as 'worker 3: 5x'")
    try:
        return _read(text)
    except SlownessError as error:
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise SlownessError(f"{shown!r}: {error}{_nearest(text)}") from None


def _read(text: str) -> Slowness:
    who, colon, what = text.partition(":")
    if not colon:
        raise SlownessError("there is no colon; write who, a colon and how, such as 'worker 3: 5x'")
    role, nodes = _who(who.split())
    words = what.split()
    percent = _percent(words.pop(0)) if words and words[0].endswith("%") else 100.0
    how = _how(words)
    times: dict[str, float] = {}
    while words and words[0] in WHEN and words[0] not in times:
        times[words[0]] = _duration(words[0], words[1] if len(words) > 1 else "")
        del words[:2]
    if words:
        rest = " ".join(words)
        raise SlownessError(f"{rest!r} is too much; after how may come when: 'from 30s', 'for 10s', 'every 60s'")
    return Slowness(
        role=role,
        nodes=nodes,
        percent=percent,
        how=how,
        start=times.get("from", 0.0),
        lasts=times.get("for"),
        every=times.get("every"),
    )


def _who(words: list[str]) -> tuple[Role, tuple[tuple[int, int], ...]]:
    if not words or words[0] not in WHO:
        raise SlownessError(f"{' '.join(words)!r} is nobody; it is {', '.join(WHO)} with a number, or * for all")
    role, numbers = WHO[words[0]], "".join(words[1:])
    if numbers == "*":
        return role, ()
    spans = []
    for part in numbers.split(","):
        match = _NODES.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high < MOST_NODES:
            raise SlownessError(f"{part!r} is no {role}'s number; write 3, or 2-3, or 0,2-3, or * for all")
        spans.append((low, high))
    return role, _joined(spans)


def _joined(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same numbers in as few spans as there can be, in order."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], high)
        else:
            joined.append((low, high))
    return tuple(joined)


def _percent(word: str) -> float:
    match = _PERCENT.fullmatch(word)
    if match is None:
        raise SlownessError(f"{word!r} is no probability; write a number from 0 to 100 and %, such as '0.16%'")
    return float(match[1])


def _how(words: list[str]) -> Times | Plus | Lognormal:
    """How slow, read from the first words, which are taken away."""
    word = words.pop(0) if words else ""
    if word == "lognormal":
        sigma = words.pop(0) if words else ""
        if not re.fullmatch(_NUMBER, sigma):
            raise SlownessError(f"{sigma!r} is no sigma; write a number, such as 'lognormal 0.5'")
        return Lognormal(float(sigma))
    if match := _TIMES.fullmatch(word):
        return Times(float(match[1]), float(match[2] or match[1]))
    if match := _PLUS.fullmatch(word):
        low = in_seconds(match[1], match[2])
        return Plus(low, in_seconds(match[3], match[4]) if match[3] else low)
    raise SlownessError(f"{word!r} does not say how slow; write {EXAMPLES}; units are {', '.join(UNITS)}")


def _duration(name: str, word: str) -> float:
    match = _DURATION.fullmatch(word)
    if match is None:
        raise SlownessError(f"{name} {word!r} is no duration; write a number with {', '.join(UNITS)}, such as '10s'")
    return in_seconds(match[1], match[2])


# What people write instead, and what they mean by it.

_MEANT = (
    (r"×", "x"),
    (r"(?<=[0-9])\s*(?:milliseconds?|millis|msecs?)\b", "ms"),
    (r"(?<=[0-9])\s*(?:seconds?|secs?)\b", "s"),
    (r"(?<=[0-9])\s*(?:minutes?|mins?)\b", "m"),
    (r"(?<=[0-9])\s*(?:percent\b|per cent\b|%)", "% "),
    (r"(?<=[0-9])\s+(?=(?:x|ms|s|m)\b)", ""),
    (r"(?<=[0-9])\s*(?:times|fold)\b", "x"),
    (r"\+\s+", "+"),
    (rf"\bx({_NUMBER})(?=\s|$)", r"\1x"),
    (r"^\s*([a-z]+)\s*(\*|[0-9][0-9,-]*(?![0-9.a-z%]))\s*:?", r"\1 \2: "),
    (rf"(lognormal)[\s(=]*({_NUMBER})\)?", r"\1 \2"),
    (rf"([:%]\s*)({_NUMBER})(?=\s|$)", r"\1\2x"),
    (rf"([:%]\s*)({_NUMBER}(?:ms|s|m)\b)", r"\1+\2"),
    (rf"([:%]\s*{_NUMBER})(-{_NUMBER}x)", r"\1x\2"),
    (rf"(:\s*)({_NUMBER})x(?=\s+\+)", r"\1\2%"),
)


def _nearest(text: str) -> str:
    """A text that is right and near, if there is one."""
    if len(text) > 200:
        return ""
    guess = re.sub(r"[a-z_]{3,}", _known_word, text.lower())
    for pattern, meant in _MEANT:
        guess = re.sub(pattern, meant, guess)
    try:
        return f"; did you mean {str(_read(guess))!r}?"
    except SlownessError:
        return ""


def _known_word(match: re.Match[str]) -> str:
    close = get_close_matches(match[0], [*WHO, "lognormal", *WHEN], n=1, cutoff=0.7)
    return close[0] if close else match[0]
