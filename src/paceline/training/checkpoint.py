"""Checkpoints: parameters, what the optimizer remembers of them, and how many iterations there were.

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loaded = paceline.load_checkpoint("checkpoints", model, optimizer)
    opt = paceline.Optimizer(optimizer, iteration=loaded.iteration)
    ...
        opt.step()
        if opt.iteration % 100 == 0:
            paceline.save_checkpoint("checkpoints", model, opt)

A run may go on with another number of workers or servers, or alone: nothing in a checkpoint depends on them. One is a
folder of its own, which gets its name when all of it is on disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn

from paceline.training import formats
from paceline.training.formats import Format
from paceline.training.optimizer import Optimizer
from paceline.training.saving import CheckpointError

VERSION = 1
ABOUT = "checkpoint.json"
NAME = "iteration-"
PARTIAL = ".partial-"


class About(msgspec.Struct, frozen=True):
    """What is not a tensor. `numbers` are what the optimizer remembers as plain numbers, by parameter."""

    version: int
    iteration: int
    optimizer: str
    groups: list[dict[str, Any]]
    numbers: dict[str, dict[str, Any]]
    extra: Any = None


class Loaded(NamedTuple):
    """What there was: how many iterations, and what the script had added. Nothing yet: `path` is None."""

    iteration: int = 0
    extra: Any = None
    path: Path | None = None


def save_checkpoint(
    folder: str | Path,
    model: nn.Module,
    optimizer: Optimizer,
    extra: Any = None,
    *,
    keep: int = 3,
    format: Format = "safetensors",  # noqa: A002
    wait: bool = False,
) -> None:
    """Save everything as it is now. Called by all workers, it is done by worker 0; it is written in the background.

    `extra` is what the script needs beside it, of plain numbers, texts, lists and dictionaries. Of the checkpoints in
    the folder the newest `keep` are kept. If the one before is still being written, this waits for that. What goes
    wrong in the background is raised here the next time, or when the script ends.
    """
    formats.check_format(format)
    if keep < 1:
        raise CheckpointError(f"keep is {keep}; at least 1 checkpoint must be kept")
    if optimizer.rank:
        return
    optimizer.saving.wait()
    names = _names(model, optimizer)
    try:
        extra = msgspec.json.decode(msgspec.json.encode(extra))
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"extra cannot be saved: {error}; give plain numbers, texts, lists and dicts") from None
    tensors = {
        name: tensor.detach().clone() for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)
    }
    groups = [
        {key: _plain(value) for key, value in group.items() if key != "params"} for group in optimizer.param_groups
    ]
    taken = optimizer.take()
    folder = Path(folder)

    def write() -> None:
        state = taken()
        for name, values in state.values.items():
            tensors.update({known: values.clone().to(tensors[known].dtype) for known in names[name]})
        remembered, numbers = _split({names[name][0]: mine for name, mine in state.remembered.items()})
        about = About(VERSION, state.iteration, optimizer.kind, groups, numbers, extra)
        _write(folder, {"model": tensors, "optimizer": remembered}, about, format)
        _forget(folder, keep)

    optimizer.saving.start(write)
    if wait:
        optimizer.saving.wait()


def load_checkpoint(folder: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> Loaded:
    """Put the newest checkpoint of the folder, or the one that it is, into the model and torch's own optimizer.

    Do this before `paceline.Optimizer` wraps the optimizer: that is when a run begins. If anything does not fit,
    nothing is changed.
    """
    if isinstance(optimizer, Optimizer):
        raise CheckpointError(
            "a run has begun when its optimizer is wrapped; load into torch's own, then wrap that: "
            "paceline.Optimizer(optimizer, iteration=loaded.iteration)"
        )
    path = _newest(Path(folder))
    if path is None:
        return Loaded()
    about = _about(path)
    parts = formats.read(path)
    _check(path, about, parts["model"], model, optimizer)
    names = [_by_parameter(model).get(id(p), [""])[0] for group in optimizer.param_groups for p in group["params"]]
    state = _joined(parts["optimizer"], about.numbers)
    try:
        optimizer.load_state_dict(
            {
                "state": {n: state[name] for n, name in enumerate(names) if name in state},
                "param_groups": _groups(about.groups, optimizer),
            }
        )
    except ValueError as error:
        raise CheckpointError(f"{path} does not fit: {error}") from error
    model.load_state_dict(parts["model"])
    return Loaded(about.iteration, about.extra, path)


def _names(model: nn.Module, optimizer: Optimizer) -> dict[str, list[str]]:
    """What the model calls the parameters that the optimizer has names of its own for; one may have several."""
    known = _by_parameter(model)
    names = {}
    for name, parameter in optimizer.named.items():
        if id(parameter) not in known:
            raise CheckpointError(
                f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not the model's; "
                "give save_checkpoint the model that it trains"
            )
        names[name] = known[id(parameter)]
    return names


def _by_parameter(model: nn.Module) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return names


# What an optimizer remembers, as tensors and as plain numbers.


def _split(remembered: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for parameter, state in remembered.items():
        for name, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{parameter}/{name}"] = value
            elif isinstance(value, int | float | None):
                numbers.setdefault(parameter, {})[name] = value
            else:
                raise CheckpointError(f"the optimizer remembers {name!r} of {parameter!r}, a {type(value).__name__}")
    return tensors, numbers


def _joined(tensors: Mapping[str, Tensor], numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    state: dict[str, dict[str, Any]] = {parameter: dict(mine) for parameter, mine in numbers.items()}
    for key, tensor in tensors.items():
        parameter, _, name = key.rpartition("/")
        state.setdefault(parameter, {})[name] = tensor
    return state


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


def _groups(saved: list[dict[str, Any]], optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """The groups as torch wants them: the numbers of their parameters, and lists as tuples where they were."""
    if len(saved) != len(optimizer.param_groups):
        raise ValueError(f"it has {len(saved)} parameter groups; the optimizer has {len(optimizer.param_groups)}")
    groups, start = [], 0
    for mine, group in zip(saved, optimizer.param_groups, strict=True):
        stop = start + len(group["params"])
        settings = {key: _like(group.get(key), value) for key, value in mine.items()}
        groups.append({**settings, "params": list(range(start, stop))})
        start = stop
    return groups


def _like(now: Any, value: Any) -> Any:
    if isinstance(now, Tensor):
        return torch.full_like(now, value)
    return tuple(value) if isinstance(now, tuple) else value


# On disk.


def _write(folder: Path, parts: formats.Parts, about: About, format: Format) -> None:  # noqa: A002
    """Under another name first, so that what has the name of a checkpoint is a whole one."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(PARTIAL + "*"):
        shutil.rmtree(left, ignore_errors=True)
    name = f"{NAME}{about.iteration:010d}"
    partial = folder / f"{PARTIAL}{name}"
    partial.mkdir()
    formats.write(partial, parts, format)
    (partial / ABOUT).write_bytes(msgspec.json.format(msgspec.json.encode(about)))
    for file in partial.rglob("*"):
        _sync(file)
    _sync(partial)
    if (folder / name).exists():
        (folder / name).rename(folder / f"{PARTIAL}old-{name}")
    partial.rename(folder / name)
    _sync(folder)
    shutil.rmtree(folder / f"{PARTIAL}old-{name}", ignore_errors=True)


def _sync(path: Path) -> None:
    """Have the disk hold what was written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _forget(folder: Path, keep: int) -> None:
    for old in list(_all(folder))[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def _all(folder: Path) -> Iterator[Path]:
    """The checkpoints in a folder, the oldest first."""
    named = (path for path in folder.glob(NAME + "*") if path.name.removeprefix(NAME).isdecimal())
    yield from sorted(named, key=lambda path: int(path.name.removeprefix(NAME)))


def _newest(folder: Path) -> Path | None:
    if (folder / ABOUT).exists():
        return folder
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder")
    return max(_all(folder), key=lambda path: int(path.name.removeprefix(NAME)), default=None)


def _about(path: Path) -> About:
    try:
        about = msgspec.json.decode((path / ABOUT).read_bytes(), type=About)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(
            f"{path / ABOUT} cannot be read: {error}; to go on with the checkpoint before it, remove {path}"
        ) from error
    if about.version != VERSION:
        raise CheckpointError(f"{path} has the version {about.version}; this is paceline with version {VERSION}")
    return about


def _check(
    path: Path, about: About, tensors: Mapping[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Is it a checkpoint of this model and this optimizer?"""
    kind = type(optimizer).__name__
    if about.optimizer != kind:
        raise CheckpointError(f"{path} is of the optimizer {about.optimizer}; this one is {kind}")
    mine = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    for name in [*mine, *tensors]:
        if name not in tensors or name not in mine:
            where = "is not in it, but in the model" if name in mine else "is in it, but not in the model"
            raise CheckpointError(f"{path} is of another model: {name!r} {where}")
        if tensors[name].shape != mine[name].shape:
            shapes = f"{tuple(tensors[name].shape)} in it, and {tuple(mine[name].shape)} in the model"
            raise CheckpointError(f"{path} is of another model: {name!r} has the shape {shapes}")
