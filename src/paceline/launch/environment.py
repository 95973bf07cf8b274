"""Which worker a process is: from arguments, then `PACELINE_*`, then whoever started it.

torchrun, Slurm and Kubernetes' indexed jobs each name rank, world size and local rank in their own way. The first of
them that is there counts, and it counts whole: a rank of one is never put beside the world size of another. Single
values are replaced by `PACELINE_*` alone, and by an argument before that. A variable that is empty is not there.

All of them speak of workers only: a run of 4 workers and 2 servers has the world size 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

RUN = "PACELINE_RUN"
SEED = "PACELINE_SEED"
VALUES = ("rank", "world_size", "local_rank")
OWN = {value: f"PACELINE_{value.upper()}" for value in VALUES}
MOST = 1_000_000


class PlaceError(ValueError):
    """A place that cannot be, or of which only a part is known."""


class Place(Struct, frozen=True):
    """Which worker this is, of how many, which one on its machine, and of which run.

    `run` is the path of the run's file; `source` says in words where the numbers were found.
    """

    rank: int
    world_size: int
    local_rank: int
    run: str
    source: str


class _Launcher(NamedTuple):
    """Who may have started this process: the variables it sets, and what goes without saying."""

    name: str
    variables: dict[str, str]
    implied: dict[str, int]


LAUNCHERS = (
    _Launcher("torchrun", {"rank": "RANK", "world_size": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}, {}),
    _Launcher("Slurm", {"rank": "SLURM_PROCID", "world_size": "SLURM_NTASKS", "local_rank": "SLURM_LOCALID"}, {}),
    _Launcher("Kubernetes", {"rank": "JOB_COMPLETION_INDEX"}, {"local_rank": 0}),  # a pod for each worker
)


class _Found(NamedTuple):
    """A number, and what to call it: `RANK`, or `the argument rank`."""

    number: int
    name: str


def resolve(
    environ: Mapping[str, str],
    *,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    run: str | None = None,
) -> Place | None:
    """The place of this process, or None if it takes part in no run: then its script trains alone."""
    run = run or environ.get(RUN)
    if not run:
        return None
    arguments = dict(zip(VALUES, (rank, world_size, local_rank), strict=True))
    found = {name: _argument(name, value) for name, value in arguments.items() if value is not None}
    for value, variable in OWN.items():
        if value not in found and environ.get(variable):
            found[value] = _number(variable, environ[variable])
    replaced = [found[value].name for value in VALUES if value in found]
    launcher = None
    if len(found) < len(VALUES):
        launcher = _launcher(environ, found)
        found |= _rest(launcher, environ, found)
    _check(found)
    return Place(
        rank=found["rank"].number,
        world_size=found["world_size"].number,
        local_rank=found["local_rank"].number,
        run=run,
        source=_words(launcher, replaced),
    )


def environment_of(place: Place) -> dict[str, str]:
    """What a launcher sets for this worker, over whatever is in its own environment.

    `resolve` finds the place there, and `DistributedSampler` and the like find `RANK`, `WORLD_SIZE` and `LOCAL_RANK`.
    """
    numbers = {value: str(getattr(place, value)) for value in VALUES}
    own = {OWN[value]: number for value, number in numbers.items()}
    return own | {value.upper(): number for value, number in numbers.items()} | {RUN: place.run}


def _launcher(environ: Mapping[str, str], found: dict[str, _Found]) -> _Launcher:
    """The first launcher of which anything is there."""
    for launcher in LAUNCHERS:
        if any(environ.get(variable) for variable in launcher.variables.values()):
            return launcher
    missing = [value for value in VALUES if value not in found]
    raise PlaceError(
        f"there is a run but no {_listed(missing)}: set {_listed([OWN[value] for value in missing])}, "
        f"or start with torchrun, Slurm or as an indexed job of Kubernetes"
    )


def _rest(launcher: _Launcher, environ: Mapping[str, str], found: dict[str, _Found]) -> dict[str, _Found]:
    """What the launcher says of everything that is not found yet: all of it, or it is an error."""
    rest = {}
    for value in VALUES:
        variable = launcher.variables.get(value)
        if value in found:
            continue
        if variable and environ.get(variable):
            rest[value] = _number(variable, environ[variable])
        elif value in launcher.implied:
            rest[value] = _Found(launcher.implied[value], launcher.name)
        else:
            there = [f"{name}={environ[name]}" for name in launcher.variables.values() if environ.get(name)]
            names = f"{variable} or {OWN[value]}" if variable else OWN[value]
            raise PlaceError(f"{launcher.name} says {_listed(there)}, but no {value}: set {names}")
    return rest


def _argument(name: str, value: int) -> _Found:
    if type(value) is not int or not 0 <= value <= MOST:
        raise PlaceError(f"the argument {name} is {value!r}; it is a whole number from 0")
    return _Found(value, f"the argument {name}")


def _number(variable: str, text: str) -> _Found:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) and int(text) <= MOST):
        raise PlaceError(f"{variable} is {text[:40]!r}; it is a whole number from 0")
    return _Found(int(text), variable)


def _check(found: dict[str, _Found]) -> None:
    size = found["world_size"]
    if size.number < 1:
        raise PlaceError(f"{size.name} is 0; it is the number of workers, from 1")
    for value in ("rank", "local_rank"):
        number, name = found[value]
        if number >= size.number:
            raise PlaceError(
                f"{name} is {number}, but {size.name} is {size.number}; {value} is a number from 0 to {size.number - 1}"
            )


def _words(launcher: _Launcher | None, replaced: list[str]) -> str:
    if launcher is None:
        return _listed(replaced)
    return f"{launcher.name}, with {_listed(replaced)}" if replaced else launcher.name


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
