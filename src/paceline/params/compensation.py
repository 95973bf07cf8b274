"""DC-ASGD's correction of late gradients for one slice of the parameters (Zheng et al. 2017).

`g + lam * g * g * (now - given)`, element by element, in this order of operations. A `lam` that is adaptive needs a
running mean of the squared gradients, which is a row as long as the slice.
"""

from __future__ import annotations

from threading import local
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from paceline.params.rows import Row, is_finite

EPSILON = 1e-7  # the paper's, added to the mean of the squares so that nothing is divided by zero
SQUARES = "dc_asgd_squares"  # the running mean's name in snapshots, beside what the optimizer remembers


class Strength(Protocol):
    """How strongly to correct: by `lam`; with `memory`, by `lam / sqrt(s + EPSILON)` of the running mean `s`."""

    @property
    def lam(self) -> float: ...
    @property
    def memory(self) -> float | None: ...


class Compensator:
    """How gradients are corrected, and what has to be remembered for it."""

    def __init__(self, how: Strength, size: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        self.how = how
        self.squares = torch.zeros(size, dtype=dtype, device=device) if how.memory is not None else None
        self._lam = torch.tensor(how.lam, dtype=dtype, device=device)
        self._scratch = local()  # of each thread, as long as a piece

    def correct(self, gradient: Tensor, now: Tensor, given: Tensor, piece: slice, out: Tensor) -> Tensor | None:
        """Write a piece of the corrected gradient to `out`; the first three are that piece of their rows.

        Returns the running mean that `remember` is to have, if there is one. Nothing else changes.
        """
        squares = self._next(gradient, piece)
        if squares is None:
            strength = torch.mul(gradient, self.how.lam, out=self._room(gradient))
        else:
            strength = self._adapted(squares).mul_(gradient)
        strength.mul_(gradient)
        torch.sub(now, given, out=out)
        out.mul_(strength).add_(gradient)
        return squares

    def remember(self, squares: Tensor | None, piece: slice) -> None:
        """The gradient that this piece was corrected of is used."""
        if self.squares is not None and squares is not None:
            self.squares[piece] = squares

    def load(self, squares: Tensor) -> None:
        """Go on from what another one has remembered, if this one remembers anything."""
        if self.squares is not None:
            self.squares.copy_(squares)

    def _next(self, gradient: Tensor, piece: slice) -> Tensor | None:
        """The running mean with this gradient in it."""
        if self.squares is None or self.how.memory is None:
            return None
        new = (gradient * (1 - self.how.memory)).mul_(gradient)
        return new.add_(self.squares[piece] * self.how.memory)

    def _room(self, like: Tensor) -> Tensor:
        """To make memory for each piece anew costs more than to compute with it."""
        room: Tensor | None = getattr(self._scratch, "room", None)
        if room is None or len(room) < len(like):
            room = self._scratch.room = torch.empty_like(like)
        return room[: len(like)]

    def _adapted(self, squares: Tensor) -> Tensor:
        root = (squares + EPSILON).sqrt_()
        return torch.div(self._lam, root, out=root)


class Corrected(NamedTuple):
    """A gradient that is corrected piece by piece, as often as it is asked for. Only `use` changes anything."""

    how: Compensator
    gradient: Tensor
    now: Tensor
    given: Tensor

    def is_finite(self, piece: slice, out: Row) -> bool:
        """Write a piece to `out`. False if it is not finite, or what would be remembered of it."""
        squares = self._write(piece, out)
        return is_finite(out) and (squares is None or is_finite(squares.numpy()))

    def use(self, piece: slice, out: Row) -> None:
        """Write a piece to `out`, to step with it."""
        self.how.remember(self._write(piece, out), piece)

    def _write(self, piece: slice, out: Row) -> Tensor | None:
        now, given = self.now[piece], self.given[piece]
        return self.how.correct(self.gradient[piece], now, given, piece, torch.from_numpy(out))
