"""The gradients of one iteration on their way to one sum.

They are summed where they lie. If the sum is not finite, the gradient that is to blame is found and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from paceline.params.rows import Row, Rows, Scale


class Round:
    """The gradients of one iteration: those only remembered, and the sum of the others.

    Where `ordered`, they are summed in order of worker number, whatever the order they came in.
    """

    def __init__(self, rows: Rows, *, ordered: bool) -> None:
        self.pending: dict[int, Row] = {}
        self.sum: Row | None = None
        self.summed = 0  # gradients in the sum
        self.refused: list[int] = []  # workers whose gradient is not finite
        self.overflowed = False  # each was finite, but not their sum
        self._rows, self._ordered = rows, ordered
        self._seen: set[int] = set()
        self._kept: set[int] = set()  # those that are only remembered, but copied
        self._next = 0  # in order, the first worker whose gradient has not come
        self._borrowed = False  # the sum is in a working copy
        self._averaged = False

    def remember(self, worker: int, gradient: Row) -> bool:
        """Take a gradient that stays where it is for now. False if it is too late, or this worker's is here already.

        Unless they are summed in order, a worker may have more than one in a round, one after another: under `psp` it
        need not wait for a shard that is behind.
        """
        if self._averaged or worker in (self._seen if self._ordered else self.pending):
            return False
        self._seen.add(worker)
        self.pending[worker] = gradient
        return True

    def ready(self) -> list[int]:
        """Whose gradients can be summed now: in order, those up to the first worker whose has not come."""
        if not self._ordered:
            return list(self.pending)
        while self._next in self._seen:
            self._next += 1
        return sorted(worker for worker in self.pending if worker < self._next)

    def settle(self, worker: int) -> bool:
        """Sum this worker's gradient if there is one, and what must come before it. False if that is not there yet."""
        if worker not in self.pending or worker in self._kept:
            return True
        ready = self.ready()
        if worker in ready:
            self.fold([other for other in ready if other <= worker] if self._ordered else [worker])
        return worker not in self.pending

    def keep(self, worker: int) -> None:
        """Copy a gradient that cannot be summed yet and whose memory may vanish."""
        self.pending[worker] = self.pending[worker].copy()
        self._kept.add(worker)

    def fold(self, workers: Iterable[int]) -> None:
        """Add these workers' gradients to the sum. Their memory is not needed after that."""
        gradients = {worker: self.pending.pop(worker) for worker in workers}
        if self.summed or self.overflowed:
            self._add(gradients)
        else:
            self._begin(gradients)

    def finish(self) -> None:
        """Add all that is left. A gradient that is alone is not copied: it serves as the sum where it lies."""
        if len(self.pending) == 1 and not (self.summed or self.overflowed):
            for gradient in self._finite(self.pending):
                self.sum, self.summed = gradient, 1
            self.pending.clear()
        elif self.pending:
            self.fold(sorted(self.pending) if self._ordered else list(self.pending))

    @property
    def unsummed(self) -> list[Row] | None:
        """All gradients, in the order to sum them in, if none has been summed yet."""
        if self.summed or self.overflowed or self.refused or self._averaged:
            return None
        return [self.pending[worker] for worker in (sorted(self.pending) if self._ordered else self.pending)]

    def applied(self) -> None:
        """All have been used without a sum having been kept."""
        self.summed = len(self.pending)
        self.pending.clear()

    def average(self) -> None:
        """Make the sum the mean. Nothing can be added after that."""
        if self.sum is not None and self.scale:
            for piece in self._rows.pieces:
                self.scale(self.sum[piece], self.sum[piece])
        self._averaged = True

    @property
    def scale(self) -> Scale | None:
        """What makes the sum the mean, if that has to be done yet."""
        count = self.summed or len(self.pending)
        return None if self._averaged or count == 1 else Scale.of_mean(count, exact=self._ordered)

    def release(self) -> None:
        """Give the working copy back."""
        if self._borrowed and self.sum is not None:
            self._rows.give_back(self.sum)
        self.sum, self._borrowed = None, False

    def _begin(self, gradients: dict[int, Row]) -> None:
        """Sum from nothing; as often as a gradient turns out not to be finite, again without it."""
        while gradients and not self.overflowed:
            if self.sum is None:
                self.sum, self._borrowed = self._rows.take(), True
            bad = self._rows.sum(list(gradients.values()), self.sum)
            if bad is None:
                self.summed = len(gradients)
                return
            blamed = [worker for worker, gradient in gradients.items() if not np.isfinite(gradient[bad]).all()]
            for worker in blamed:
                del gradients[worker]
            self.refused += blamed
            if not blamed:
                self.overflowed = True
                self._finite(gradients)
        self.release()

    def _add(self, gradients: dict[int, Row]) -> None:
        """Add to what is there. It cannot be taken out again, so each gradient is looked at before."""
        good = self._finite(gradients)
        if good and self.sum is not None and not self.overflowed:
            self.summed += len(good)
            self.overflowed = self._rows.sum([self.sum, *good], self.sum) is not None

    def _finite(self, gradients: Mapping[int, Row]) -> list[Row]:
        """The gradients that are finite; the others are refused."""
        bad = [worker for worker, gradient in gradients.items() if self._rows.any_bad(gradient) is not None]
        self.refused += bad
        return [gradient for worker, gradient in gradients.items() if worker not in bad]
