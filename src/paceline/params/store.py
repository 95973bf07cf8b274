"""The values of one shard, and how gradients reach them: the update rules `immediate` and `round`.

`immediate` applies a gradient on arrival. `round` remembers the gradients of an iteration, sums them and applies their
mean once, when the round closes. Gradients with NaN or Inf are refused before any value changes.

The values live in one of two buffers. Readers borrow the live one; while they do, an update goes to the other, which is
live from then on. So a reader never sees a mix of two versions, and nothing waits unless both buffers are lent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from paceline.params.compensation import Compensator, Corrected, Strength
from paceline.params.crew import Crew
from paceline.params.norms import Norms
from paceline.params.optimizer import Optimizer
from paceline.params.round import Round
from paceline.params.rows import Row, Rows, Scale
from paceline.params.space import ParameterError, Space
from paceline.params.updater import Updater

Part = Callable[[int, slice], Row]  # in which share of the work, and which piece


class StoreError(RuntimeError):
    """Something was asked of a store that it cannot do in its present state."""


class OrderError(StoreError):
    """A gradient cannot be summed yet, because that of a worker before it is missing."""


class _NotFiniteError(Exception):
    """A sum has NaN or Inf in it."""


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
        self._buffers = buffers
        self._readers = [0, 0]
        self._live = 0
        self._deterministic = deterministic
        self._crew = crew or Crew()
        self._rows = Rows(self.size, buffers[0].numpy().dtype, self._crew)
        self._pieces = self._crew.cut(self.size, self.updater.piece)
        self._scratch: dict[int, Row] = {}  # by share of the work
        self._rounds: dict[int, Round] = {}
        self.compensator: Compensator | None = None  # what corrects gradients that are applied on arrival

    @property
    def values(self) -> Tensor:
        """The live buffer."""
        return self._buffers[self._live]

    def set(self, values: Tensor) -> None:
        """Replace all values."""
        self._check(values)
        target = self._writable()
        self._buffers[target].copy_(values)
        self._live = target

    # Readers

    def lend(self) -> int:
        """A reader starts on the live buffer; no update writes there until it is given back. Returns which it is."""
        self._readers[self._live] += 1
        return self._live

    def give_back(self, buffer: int) -> None:
        """A reader is done with a buffer."""
        if buffer not in (0, 1) or not self._readers[buffer]:
            raise StoreError(f"buffer {buffer} is not lent")
        self._readers[buffer] -= 1

    @property
    def can_update(self) -> bool:
        """Whether there is a buffer that nobody reads. If not, wait until one is given back."""
        return not (self._readers[0] and self._readers[1])

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
        how = self.compensator
        if how is not None and (given is not None or how.squares is not None):
            target = self._writable(at_once=True)
            corrected = Corrected(how, gradient, now=self.values, given=self.values if given is None else given)
            at_once = partial(self._look_at, corrected)
            if how.squares is None and self._update_at_once(target, at_once, scale, progress=progress, rates=rates):
                return True
            if not self._all_finite(corrected):
                return False
            use = partial(self._use, corrected)
            self._update(target, use, scale, in_place=True, progress=progress, norms=norms, rates=rates)
            return True
        target = self._writable(at_once=False)
        if self._update_at_once(target, partial(self._sum, [row]), scale, progress=progress, rates=rates):
            return True
        if self._rows.any_bad(row) is not None:
            return False
        as_it_is = partial(_part, row)
        self._update(target, as_it_is, scale, in_place=False, progress=progress, norms=norms, rates=rates)
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

        return all(self._crew.share(self._pieces, look))

    def _look_at(self, corrected: Corrected, share: int, piece: slice) -> Row | None:
        scratch = self._scratch_of(share, piece)
        return scratch if corrected.is_finite(piece, scratch) else None

    def _use(self, corrected: Corrected, share: int, piece: slice) -> Row:
        scratch = self._scratch_of(share, piece)
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
        if rows and len(self._pieces) == 1 and self._update_short(rows, progress, rate, norms, rates):
            del self._rounds[round]
            return Closed(len(rows))
        target = self._writable(at_once=rows is not None and len(rows) > 1)
        if rows and self._update_at_once(
            target,
            partial(self._sum, rows),
            gathered.scale,
            rows=len(rows),
            progress=progress,
            rate=rate,
            rates=rates,
        ):
            gathered.applied()
        else:
            gathered.finish()
        if gathered.sum is not None and not gathered.overflowed:
            rate = gathered.summed / of if of else 1.0
            self._update(
                target,
                partial(_part, gathered.sum),
                gathered.scale,
                in_place=True,
                progress=progress,
                rate=rate,
                norms=norms,
                rates=rates,
            )
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
        return remembered + working + sum(row.nbytes for row in self._scratch.values())

    def _update_short(
        self, rows: Sequence[Row], progress: int, rate: float, norms: Norms | None, rates: Sequence[float] | None
    ) -> bool:
        """Step with the mean of rows that are one piece each: nothing to share out, and all is looked at before.

        False: the sum is not finite; nothing has changed.
        """
        count = len(rows)
        scratch = self._scratch_of(0, self._pieces[0])
        row = self._rows.sum_piece(rows, self._pieces[0], scratch)
        if row is None:
            return False
        if count > 1:
            if self.updater.linear and not self._deterministic:
                rate *= 1 / count
            else:
                Scale.of_mean(count, exact=self._deterministic)(row, scratch)
        target = self._writable()
        old = self.values if target != self._live else None
        values = self._buffers[target]
        step = self.updater.begin(values, old=old, progress=progress, rate=rate, norms=norms, rates=rates)
        step(0, torch.from_numpy(row))
        self._live = target
        return True

    def _update_at_once(
        self,
        target: int,
        part: Callable[[int, slice], Row | None],
        scale: Scale | None,
        *,
        rows: int = 1,
        progress: int,
        rate: float = 1.0,
        rates: Sequence[float] | None = None,
    ) -> bool:
        """Step piece by piece with what `part` gives, or None if that is not finite, so that it never leaves the cache.

        Only where it can be undone should a later piece not be finite: the optimizer remembers nothing, and the values
        go to the buffer that is not live. False: it cannot be done so, or not all is finite; nothing has changed.
        """
        if target == self._live or not self.updater.linear:
            return False
        if scale and not self._deterministic:
            rate, scale = rate * scale.number, None

        def finite(share: int, piece: slice) -> Row:
            row = part(share, piece)
            if row is None:
                raise _NotFiniteError
            if not scale:
                return row
            scratch = self._scratch_of(share, piece)
            scale(row, scratch)
            return scratch

        steps = self.updater.steps
        try:
            self._step(target, finite, rows=rows, progress=progress, rate=rate, rates=rates)
        except _NotFiniteError:
            self.updater.steps = steps
            return False
        return True

    def _sum(self, rows: Sequence[Row], share: int, piece: slice) -> Row | None:
        return self._rows.sum_piece(rows, piece, self._scratch_of(share, piece))

    def _update(
        self,
        target: int,
        part: Part,
        scale: Scale | None,
        *,
        in_place: bool,
        progress: int,
        rate: float = 1.0,
        norms: Norms | None = None,
        rates: Sequence[float] | None = None,
    ) -> None:
        """Step with a gradient of which `part` gives each piece, which is scaled `in_place` or left as it is."""
        if scale and self.updater.linear and not self._deterministic:
            rate *= scale.number
            scale = None

        def scaled(share: int, piece: slice) -> Row:
            row = part(share, piece)
            if not scale:
                return row
            out = row if in_place else self._scratch_of(share, piece)
            scale(row, out)
            return out

        self._step(target, scaled, progress=progress, rate=rate, norms=norms, rates=rates, backwards=True)

    def _step(
        self,
        target: int,
        part: Part,
        *,
        rows: int = 1,
        progress: int,
        rate: float,
        norms: Norms | None = None,
        rates: Sequence[float] | None = None,
        backwards: bool = False,
    ) -> None:
        """Step piece by piece; `part` gives each piece of the gradient, out of so many rows, and is told in which share
        of the work.

        A gradient that was looked at or summed before is gone through `backwards`: its end is still in the cache.
        """
        old = self.values if target != self._live else None
        step = self.updater.begin(
            self._buffers[target], old=old, progress=progress, rate=rate, norms=norms, rates=rates
        )

        def some(share: int, pieces: Iterable[slice]) -> None:
            for piece in pieces:
                step(piece.start, torch.from_numpy(part(share, piece)))

        self._crew.share(self._pieces[::-1] if backwards else self._pieces, some, rows)
        self._live = target

    def _scratch_of(self, share: int, piece: slice) -> Row:
        """Room for one piece."""
        if share not in self._scratch:
            self._scratch[share] = np.zeros(self._pieces[0].stop, self._rows.dtype)
        return self._scratch[share][: piece.stop - piece.start]

    def _writable(self, *, at_once: bool = False) -> int:
        """The buffer to update: the live one unless it is lent, or the other lets it be done at once, and that pays.

        A gradient that is alone is sooner looked at and then added in place than brought to other memory in one pass.
        """
        spare = 1 - self._live
        if not self._readers[spare] and (self._readers[self._live] or (at_once and self.updater.linear)):
            return spare
        if not self._readers[self._live]:
            return self._live
        raise StoreError("both buffers are lent; wait until one is given back (can_update)")

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


def _part(row: Row, _: int, piece: slice) -> Row:
    return row[piece]
