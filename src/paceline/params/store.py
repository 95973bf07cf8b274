"""The values of one shard, and how gradients reach them: the update rules `immediate` and `round`.

`immediate` applies a gradient on arrival. `round` remembers the gradients of an iteration, sums them and applies their
mean once, when the round closes. Gradients with NaN or Inf are refused before any value changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from paceline.params.buffers import Buffers, StoreError
from paceline.params.compensation import Compensator, Corrected, Strength
from paceline.params.crew import Crew
from paceline.params.norms import Norms
from paceline.params.optimizer import Optimizer
from paceline.params.round import Round
from paceline.params.rows import Row, Rows, Scale
from paceline.params.space import ParameterError, Space
from paceline.params.stepping import Step, Stepping, part_of
from paceline.params.updater import Updater


class OrderError(StoreError):
    """A gradient cannot be summed yet, because that of a worker before it is missing."""


class Closed(Struct, frozen=True, gc=False):
    """What became of a round: how many gradients were applied, and whose were refused because they are not finite.

    `overflowed` says that each gradient was finite but their sum was not; then nothing was applied.
    """

    gradients: int
    refused: tuple[int, ...] = ()
    overflowed: bool = False


class Store:
    """The elements from `start` up to `stop`, not included, in one of two buffers.

    `deterministic` gives, for the update rule `round`, bit for bit what one process gets that adds the gradients in
    order of worker number, divides by their number and steps. It is for models whose workers wait until their round has
    closed (`bsp`, `drop`, `psp`); a worker that runs ahead needs its memory again before those ahead of it in the order
    have come, and gets an `OrderError`.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        space: Space,
        start: int,
        stop: int,
        buffers: tuple[Tensor, Tensor],
        *,
        deterministic: bool = False,
        crew: Crew | None = None,
    ) -> None:
        self.updater = Updater(optimizer, space, start, stop, buffers[0].dtype, deterministic=deterministic)
        self.size = stop - start
        for buffer in buffers:
            self._check(buffer)
        self.buffers = Buffers(buffers)
        self._deterministic = deterministic
        self._crew = crew or Crew()
        self._rows = Rows(self.size, buffers[0].numpy().dtype, self._crew)
        self._stepping = Stepping(self.updater, self.buffers, self._rows, self._crew, deterministic=deterministic)
        self._rounds: dict[int, Round] = {}
        self.compensator: Compensator | None = None  # what corrects gradients that are applied on arrival

    @property
    def values(self) -> Tensor:
        """As they are now, in the live buffer."""
        return self.buffers.values

    def set(self, values: Tensor) -> None:
        """Replace all values."""
        self._check(values)
        target = self.buffers.writable()
        self.buffers[target].copy_(values)
        self.buffers.live = target

    # The update rule `immediate`

    def apply(
        self,
        gradient: Tensor,
        *,
        share: float,
        progress: int,
        norms: Norms | None = None,
        rates: Sequence[float] | None = None,
        given: Tensor | None = None,
    ) -> bool:
        """Step with a gradient, times `share`. False, and nothing has changed, if it is not finite.

        `norms` are those of the gradient times `share`, where LARS cuts a tensor. `rates` are the groups' learning
        rates if not the optimizer's own. Where delays are compensated, `given` is what the gradient was computed from,
        if that is known and not what the values are now.
        """
        if not 0 < share <= 1:
            raise ParameterError(f"a share is above 0 and at most 1, not {share}")
        row = self._row(gradient)
        scale = Scale(np.multiply, share) if share < 1 else None
        step = Step(progress, 1.0, norms, rates)
        how = self.compensator
        if how is not None and (given is not None or how.squares is not None):
            target = self._stepping.target(at_once=True)
            corrected = Corrected(how, gradient, now=self.values, given=self.values if given is None else given)
            at_once = partial(self._look_at, corrected)
            if how.squares is None and self._stepping.at_once(target, at_once, scale, step):
                return True
            if not self._all_finite(corrected):
                return False
            self._stepping.update(target, partial(self._use, corrected), scale, step, in_place=True)
            return True
        target = self._stepping.target()
        if self._stepping.at_once(target, partial(self._stepping.sum_of, [row]), scale, step):
            return True
        if self._rows.any_bad(row) is not None:
            return False
        self._stepping.update(target, partial(part_of, row), scale, step, in_place=False)
        return True

    def compensate(self, how: Strength | None) -> None:
        """From now on correct gradients that are applied on arrival for their delay, in this way or not at all."""
        before = self.compensator
        self.compensator = None if how is None else Compensator(how, self.size, self.updater.dtype)
        if self.compensator is not None and before is not None and before.squares is not None:
            self.compensator.load(before.squares)

    def _all_finite(self, corrected: Corrected) -> bool:
        """A corrected gradient is made once to see whether it is finite, and again to step. No row is kept of it."""

        def look(share: int, pieces: Iterable[slice]) -> bool:
            return all(self._look_at(corrected, share, piece) is not None for piece in pieces)

        return all(self._crew.share(self._stepping.pieces, look))

    def _look_at(self, corrected: Corrected, share: int, piece: slice) -> Row | None:
        scratch = self._stepping.room_for(share, piece)
        return scratch if corrected.is_finite(piece, scratch) else None

    def _use(self, corrected: Corrected, share: int, piece: slice) -> Row:
        scratch = self._stepping.room_for(share, piece)
        corrected.use(piece, scratch)
        return scratch

    # The update rule `round`

    def gather(self, round: int, worker: int, gradient: Tensor | Row) -> None:  # noqa: A002
        """Remember a gradient as part of a round. It is not copied: its memory must stay until it is summed."""
        row = self._row(gradient)
        gathered = self._rounds.get(round)
        if gathered is None:
            gathered = self._rounds[round] = Round(self._rows, ordered=self._deterministic)
        if not gathered.remember(worker, row):
            raise StoreError(f"round {round} has a gradient of worker {worker} already, or is closing")

    def absorb(self, worker: int | None = None) -> None:
        """Sum what is only remembered: of this worker, because its memory is needed again, or of all that can be."""
        for number, gathered in self._rounds.items():
            if worker is None:
                gathered.fold(gathered.ready())
            elif not gathered.settle(worker):
                raise OrderError(
                    f"the gradient of worker {worker} in round {number} cannot be summed yet: a deterministic store "
                    "sums in order of worker number, and those before it have not all come"
                )

    def holds(self, round: int, worker: int) -> bool:  # noqa: A002
        """Whether a gradient that was gathered is still only remembered, and its memory needed."""
        return round in self._rounds and worker in self._rounds[round].pending

    def discard(self, worker: int) -> None:
        """The worker is gone and its memory with it: sum its gradients, or copy them if it is not their turn."""
        for gathered in self._rounds.values():
            if not gathered.settle(worker):
                gathered.keep(worker)

    def partial_norms(self, round: int) -> Norms:  # noqa: A002
        """For LARS: this shard's part of the norms of tensors that are cut. Then close the round with their totals."""
        gathered = self._rounds.get(round)
        if gathered is None:
            return Norms()
        gathered.finish()
        gathered.average()
        if gathered.sum is None:
            return Norms()
        return self.updater.partial_norms(self.values, torch.from_numpy(gathered.sum))

    def close(
        self,
        round: int,  # noqa: A002
        *,
        progress: int,
        of: int | None = None,
        norms: Norms | None = None,
        rates: Sequence[float] | None = None,
    ) -> Closed:
        """Sum what is left of a round and step once with the mean.

        With linear scaling, `of` is how many gradients make a whole step; fewer have that share of the rate.
        """
        gathered = self._rounds.get(round)
        if gathered is None:
            return Closed(0)
        rate = len(gathered.pending) / of if of else 1.0
        rows = gathered.unsummed
        step = Step(progress, rate, norms, rates)
        if rows and len(self._stepping.pieces) == 1 and self._stepping.short(rows, step):
            del self._rounds[round]
            return Closed(len(rows))
        target = self._stepping.target(at_once=rows is not None and len(rows) > 1)
        part = partial(self._stepping.sum_of, rows or [])
        if rows and self._stepping.at_once(target, part, gathered.scale, step, rows=len(rows)):
            gathered.applied()
        else:
            gathered.finish()
        if gathered.sum is not None and not gathered.overflowed:
            step = Step(progress, gathered.summed / of if of else 1.0, norms, rates)
            self._stepping.update(target, partial(part_of, gathered.sum), gathered.scale, step, in_place=True)
        gathered.release()
        del self._rounds[round]
        applied = 0 if gathered.overflowed else gathered.summed
        return Closed(applied, tuple(sorted(gathered.refused)), gathered.overflowed)

    @property
    def nbytes(self) -> int:
        """The memory this takes beside the two buffers: optimizer state and working copies."""
        working = self._rows.made * self.size * self._rows.dtype.itemsize
        squares = self.compensator.squares if self.compensator is not None else None
        remembered = self.updater.nbytes + (0 if squares is None else squares.nbytes)
        return remembered + working + self._stepping.nbytes

    def _row(self, gradient: Tensor | Row) -> Row:
        if isinstance(gradient, Tensor):
            self._check(gradient)
            gradient = gradient.numpy()
        elif gradient.shape != (self.size,) or gradient.dtype != self._rows.dtype:
            self._check(torch.from_numpy(gradient))
        return gradient

    def _check(self, row: Tensor) -> None:
        if row.shape != (self.size,) or row.dtype != self.updater.dtype:
            raise ParameterError(
                f"a row of {tuple(row.shape)} {row.dtype} does not fit: the shard has {self.size} {self.updater.dtype}"
            )
