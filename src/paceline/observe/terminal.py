"""How commands speak to their user: figures on stdout, complaints in one line on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.text import Text

PLAIN_EVERY = 60.0  # seconds between two lines that say how far long work is, where no line can change


def stop(message: str) -> NoReturn:
    """The user has asked for something that cannot be."""
    complain(message)
    raise typer.Exit(2)


def complain(message: str) -> None:
    """One line, whatever the user's text has in it."""
    line = " ".join(message.split())
    typer.echo("paceline: " + "".join(c if c.isprintable() else "?" for c in line), err=True)


def console_for_figures() -> Console:
    """Plain text of 100 columns where stdout is no terminal, unless COLUMNS says otherwise."""
    return _console(stderr=False)


def console_for_progress(*, as_json: bool) -> Console:
    """For long work. Where a program reads stdout, people read stderr."""
    return _console(stderr=as_json)


def _console(*, stderr: bool) -> Console:
    wide = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, width=None if wide else 100, highlight=False, markup=False, emoji=False)


@contextmanager
def saying(what: str) -> Iterator[Callable[[str], None]]:
    """On stderr, how far some long work is: in a line that changes, or, where nobody could see that, every minute."""
    console = _console(stderr=True)
    if console.is_terminal:
        with console.status(Text(what)) as status:
            yield lambda far: status.update(Text(f"{what}: {far}"))
        return
    last = monotonic()

    def say(far: str) -> None:
        nonlocal last
        if monotonic() - last >= PLAIN_EVERY:
            last = monotonic()
            console.print(Text(f"{what}: {far}"), soft_wrap=True)

    yield say


def print_json(document: Any) -> None:
    typer.echo(msgspec.json.encode(document).decode())
