"""All that a shard has, as it travels: what it begins with, and copies of it while the run goes on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from paceline.nodes import messages as m
from paceline.nodes.errors import WrongRequest
from paceline.nodes.snapshot import number_of, tensor_of
from paceline.params.compensation import SQUARES
from paceline.params.store import Store


def load(store: Store, values: Tensor, initial: m.Initial, rows: Mapping[str, Tensor]) -> None:
    """The first values, and in `rows` what is remembered of each element from before. Raises ParameterError."""
    remembered = {name: row for name, row in rows.items() if name != SQUARES}
    if SQUARES in rows and store.compensator is not None:
        store.compensator.load(rows[SQUARES])
    if initial.steps:
        numbers = {name: tensor_of(number) for name, number in initial.numbers.items()}
        store.updater.load_state_dict({"steps": torch.tensor(initial.steps), **numbers, **remembered})
    store.set(values)


def copied(store: Store, shard: int, clock: int) -> list[tuple[m.AnyMessage, memoryview | None]]:
    """The messages that bring it all to somebody, with what goes with them. WrongRequest if it cannot travel."""
    state = {m.VALUES: store.values, **store.updater.state_dict()}
    if store.compensator is not None and store.compensator.squares is not None:
        state[SQUARES] = store.compensator.squares
    steps = int(state.pop("steps"))
    rows = {name: row.clone() for name, row in state.items() if row.dim()}
    for name, row in rows.items():
        if row.dtype != store.values.dtype:
            raise WrongRequest(f"the optimizer remembers {name} as {row.dtype}; only {store.values.dtype} can be saved")
    numbers = {name: number_of(number) for name, number in state.items() if not number.dim()}
    saved = m.Saved(shard, clock, steps, list(rows), numbers)
    return [(saved, None), *((m.Row(shard, name), row.numpy().view(np.uint8).data) for name, row in rows.items())]
