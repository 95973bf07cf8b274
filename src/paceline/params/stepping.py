"""How a gradient becomes a step: piece by piece, in as few passes over the memory as can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from paceline.params.buffers import Buffers
from paceline.params.crew import Crew
from paceline.params.norms import Norms
from paceline.params.rows import Row, Rows, Scale
from paceline.params.updater import Updater

Part = Callable[[int, slice], Row]  # in which share of the work, and which piece


class Step(NamedTuple):
    """One step of the optimizer, with this share of its learning rates.

    `norms` are those of the gradient, where LARS cuts a tensor; `rates` the groups' learning rates if not its own.
    """

    progress: int
    rate: float = 1.0
    norms: Norms | None = None
    rates: Sequence[float] | None = None

    def scaled(self, by: float) -> Step:
        return Step(self.progress, self.rate * by, self.norms, self.rates)


class _NotFiniteError(Exception):
    """A sum has NaN or Inf in it."""


class Stepping:
    """`deterministic`: gradients are scaled as one process does it, and not by way of the rate."""

    def __init__(self, updater: Updater, buffers: Buffers, rows: Rows, crew: Crew, *, deterministic: bool) -> None:
        self.pieces = crew.cut(rows.size, updater.piece)
        self._updater = updater
        self._buffers = buffers
        self._rows = rows
        self._crew = crew
        self._deterministic = deterministic
        self._room: dict[int, Row] = {}  # by share of the work

    @property
    def nbytes(self) -> int:
        return sum(row.nbytes for row in self._room.values())

    def target(self, *, at_once: bool = False) -> int:
        """The buffer to update. A gradient that is alone is sooner looked at and then added in place than brought to
        other memory in one pass; several are not, if that can be done `at_once`.
        """
        return self._buffers.writable(rather_other=at_once and self._updater.linear)

    def short(self, rows: Sequence[Row], step: Step) -> bool:
        """Step with the mean of rows that are one piece each: nothing to share out, and all is looked at before.

        False: the sum is not finite; nothing has changed.
        """
        count = len(rows)
        scratch = self.room_for(0, self.pieces[0])
        row = self._rows.sum_piece(rows, self.pieces[0], scratch)
        if row is None:
            return False
        share = 1.0
        if count > 1:
            if self._updater.linear and not self._deterministic:
                share = 1 / count
            else:
                Scale.of_mean(count, exact=self._deterministic)(row, scratch)
        target = self._buffers.writable()
        self._begin(target, step, share)(0, torch.from_numpy(row))
        self._buffers.live = target
        return True

    def at_once(
        self,
        target: int,
        part: Callable[[int, slice], Row | None],
        scale: Scale | None,
        step: Step,
        *,
        rows: int = 1,
    ) -> bool:
        """Step piece by piece with what `part` gives, or None if that is not finite, so that it never leaves the cache.

        Only where it can be undone should a later piece not be finite: the optimizer remembers nothing, and the values
        go to the buffer that is not live. False: it cannot be done so, or not all is finite; nothing has changed.
        """
        if target == self._buffers.live or not self._updater.linear:
            return False
        if scale and not self._deterministic:
            step, scale = step.scaled(scale.number), None

        def finite(share: int, piece: slice) -> Row:
            row = part(share, piece)
            if row is None:
                raise _NotFiniteError
            if not scale:
                return row
            scratch = self.room_for(share, piece)
            scale(row, scratch)
            return scratch

        steps = self._updater.steps
        try:
            self._step(target, finite, step, rows=rows)
        except _NotFiniteError:
            self._updater.steps = steps
            return False
        return True

    def update(self, target: int, part: Part, scale: Scale | None, step: Step, *, in_place: bool) -> None:
        """Step with a gradient of which `part` gives each piece, which is scaled `in_place` or left as it is."""
        if scale and self._updater.linear and not self._deterministic:
            step, scale = step.scaled(scale.number), None

        def scaled(share: int, piece: slice) -> Row:
            row = part(share, piece)
            if not scale:
                return row
            out = row if in_place else self.room_for(share, piece)
            scale(row, out)
            return out

        self._step(target, scaled, step, backwards=True)

    def _step(self, target: int, part: Part, step: Step, *, rows: int = 1, backwards: bool = False) -> None:
        """Step piece by piece; `part` gives each piece of the gradient, out of so many rows, and is told in which share
        of the work.

        A gradient that was looked at or summed before is gone through `backwards`: its end is still in the cache.
        """
        with_piece = self._begin(target, step)

        def some(share: int, pieces: Iterable[slice]) -> None:
            for piece in pieces:
                with_piece(piece.start, torch.from_numpy(part(share, piece)))

        self._crew.share(self.pieces[::-1] if backwards else self.pieces, some, rows)
        self._buffers.live = target

    def _begin(self, target: int, step: Step, share: float = 1.0) -> Callable[[int, Tensor], None]:
        """With this share of the step's rate."""
        progress, rate, norms, rates = step
        old = self._buffers.values if target != self._buffers.live else None
        values = self._buffers[target]
        return self._updater.begin(values, old=old, progress=progress, rate=rate * share, norms=norms, rates=rates)

    def sum_of(self, rows: Sequence[Row], share: int, piece: slice) -> Row | None:
        return self._rows.sum_piece(rows, piece, self.room_for(share, piece))

    def room_for(self, share: int, piece: slice) -> Row:
        """Room for one piece."""
        if share not in self._room:
            self._room[share] = np.zeros(self.pieces[0].stop, self._rows.dtype)
        return self._room[share][: piece.stop - piece.start]


def part_of(row: Row, _: int, piece: slice) -> Row:
    return row[piece]
