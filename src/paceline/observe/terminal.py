"""How commands speak to their user: figures on stdout, complaints in one line on stderr."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import msgspec
import typer
from rich.console import Console


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


def print_json(document: Any) -> None:
    typer.echo(msgspec.json.encode(document).decode())
