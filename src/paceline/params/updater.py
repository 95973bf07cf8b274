"""The optimizer of one slice of the parameters: what it remembers, and its steps.

A step takes the gradient in pieces, so that whoever sums gradients can do it piece by piece and the step finds each
piece in the cache.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.params.crew import cut
from paceline.params.norms import Norms, local_rate, square
from paceline.params.optimizer import Group, Optimizer, OptimizerError, Settings, nearest, number
from paceline.params.own import Own, check_elementwise
from paceline.params.rows import PIECE
from paceline.params.rules import Rule, rule
from paceline.params.space import ParameterError, Space

MANY_PASSES = 2**19  # bytes of a piece for kernels that make many passes over it, and need room for temporaries
DTYPES = (torch.float32, torch.float64)


class Segment(NamedTuple):
    """Neighbouring elements that step alike; `name` is their tensor if its norm matters."""

    start: int
    stop: int
    rule: Rule
    lr: float
    settings: Settings
    name: str | None
    group: int | None  # which of the optimizer's groups it is of; None: of no group, although there are some


class Updater:
    """The optimizer's state for the elements from `start` up to `stop`, not included, and its steps.

    With `deterministic` the results are bit for bit those of `torch.optim` on whole tensors, wherever these are cut and
    wherever a piece ends. Without, kernels are taken that are up to three times as fast and round differently.

    `piece` is how many elements a piece of the gradient should have. Where `linear`, a step is the rate times the
    gradient and nothing else, so that `rate` can carry a scale of the gradient.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        space: Space,
        start: int,
        stop: int,
        dtype: torch.dtype = torch.float32,
        *,
        deterministic: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        if not 0 <= start < stop <= space.size:
            raise ParameterError(f"there are no elements {start} to {stop}; there are 0 to {space.size}")
        if dtype not in DTYPES:
            raise ParameterError(f"parameters of {dtype} cannot be updated; they must be float32 or float64")
        if optimizer.own:
            for group in (None, *optimizer.groups):
                check_elementwise(optimizer.name, optimizer.resolved(group))
        self.optimizer, self.dtype, self.size = optimizer, dtype, stop - start
        self._segments = _segments(optimizer, space, start, stop, dtype, exact=deterministic)
        self._starts = [segment.start for segment in self._segments]
        self.cut = _cut(space, start, stop) if optimizer.name == "lars" else ()
        rules = [segment.rule for segment in self._segments]
        self.linear = all(rule.linear for rule in rules)
        self._whole = optimizer.own or optimizer.name == "lars"
        one_pass = all(rule.linear or rule.fused for rule in rules)
        self._piece = self.size if optimizer.own else (PIECE if one_pass else MANY_PASSES) // dtype.itemsize
        self.piece = self.size if self._whole else self._piece
        self._state: dict[str, Tensor] = {}
        for segment in self._segments:
            for name in segment.rule.state:
                if name not in self._state:
                    self._state[name] = torch.zeros(self.size, dtype=dtype, device=device)
                if segment.rule.initial(name):
                    self._state[name][segment.start : segment.stop] = segment.rule.initial(name)
        self.steps = 0

    def step(
        self,
        values: Tensor,
        pieces: Iterable[tuple[int, Tensor]],
        *,
        progress: int,
        rate: float = 1.0,
        norms: Norms | None = None,
        rates: Sequence[float] | None = None,
    ) -> None:
        """Update `values`, this slice of the parameters, once.

        `pieces` are (offset in the slice, gradient from there), in order and without gaps. `progress` is what the
        schedule follows; `rate` multiplies the learning rate. LARS needs the norms of the tensors that are cut. `rates`
        are the groups' learning rates, of all parameters if there are no groups, instead of the optimizer's own.
        """
        step = self.begin(values, progress=progress, rate=rate, norms=norms, rates=rates)
        done = 0
        for offset, gradient in [(0, _joined(pieces))] if self._whole else pieces:
            if offset != done:
                raise ParameterError(f"a piece of the gradient starts at {offset}; the next is due at {done}")
            done += gradient.numel()
            step(offset, gradient)
        if done != self.size:
            raise ParameterError(f"the pieces of the gradient have {done} elements; the slice has {self.size}")

    def begin(
        self,
        values: Tensor,
        *,
        old: Tensor | None = None,
        progress: int,
        rate: float = 1.0,
        norms: Norms | None = None,
        rates: Sequence[float] | None = None,
    ) -> Callable[[int, Tensor], None]:
        """A step of which the caller hands in the pieces: each once, `piece` elements, in any order, by any thread.

        The values that it starts from are `old`, if those are elsewhere.
        """
        self._check_norms(norms)
        self.check_rates(rates)
        schedule = self.optimizer.schedule
        factor = rate * schedule.factor(progress) if schedule else rate
        learning = [
            (segment.lr if rates is None or segment.group is None else rates[segment.group]) * factor
            for segment in self._segments
        ]
        self.steps += 1

        def step(offset: int, gradient: Tensor) -> None:
            self._step_piece(values, old, gradient, offset, offset + gradient.numel(), learning)

        def step_whole(_: int, gradient: Tensor) -> None:
            for place, segment in enumerate(self._segments):
                learning[place] *= self._local_rate(segment, values if old is None else old, gradient, norms)
            for piece in cut(gradient.numel(), self._piece):
                step(piece.start, gradient[piece])

        return step_whole if self._whole else step

    def partial_norms(self, values: Tensor, gradient: Tensor) -> Norms:
        """This slice's share of the norms of the tensors that it cuts: add those of all servers and hand them in.

        There are none unless the optimizer is LARS.
        """
        squares = {
            segment.name: (
                square(values[segment.start : segment.stop]),
                square(gradient[segment.start : segment.stop]),
            )
            for segment in self._segments
            if segment.name in self.cut and segment.name is not None
        }
        return Norms(squares)

    @property
    def nbytes(self) -> int:
        """The memory that the state takes."""
        return sum(state.nbytes for state in self.state_dict().values())

    def state_dict(self) -> dict[str, Tensor]:
        """How many steps there were, and what the optimizer remembers of each element. Mostly not a copy."""
        state = dict(self._state)
        for segment in self._segments:
            if isinstance(segment.rule, Own):
                segment.rule.save(state, segment.start, self.size)
        return {"steps": torch.tensor(self.steps), **state}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` of the same optimizer gave for the same elements, cut or joined as need be."""
        for name, mine in self._state.items():
            theirs = state.get(name)
            if theirs is None or theirs.shape != mine.shape:
                shape = "no" if theirs is None else f"a {tuple(theirs.shape)}"
                raise OptimizerError(
                    f"{self.optimizer.name} needs {name} of {self.size} elements; there is {shape} one"
                )
        for name, mine in self._state.items():
            mine.copy_(state[name])
        self.steps = int(state["steps"])
        for segment in self._segments:
            if isinstance(segment.rule, Own):
                segment.rule.load(state, segment.start, segment.stop)

    def _step_piece(
        self, values: Tensor, old: Tensor | None, gradient: Tensor, start: int, stop: int, rates: Sequence[float]
    ) -> None:
        for place in range(bisect_right(self._starts, start) - 1, bisect_left(self._starts, stop)):
            segment = self._segments[place]
            begin, end = max(start, segment.start), min(stop, segment.stop)
            state = [self._state[name] for name in segment.rule.state]
            mine, part, before = values, gradient, old
            if end - begin < self.size:
                state = [row[begin:end] for row in state]
                mine, part = values[begin:end], gradient[begin - start : end - start]
                before = None if old is None else old[begin:end]
            if before is None:
                segment.rule.step(mine, part, state, rates[place], self.steps)
            else:
                segment.rule.step_from(before, mine, part, state, rates[place], self.steps)

    def _check_norms(self, norms: Norms | None) -> None:
        for name in self.cut:
            if norms is None or name not in norms.squares:
                raise OptimizerError(
                    f"lars needs the norm of {name!r}, which is cut: add the partial norms of all its servers and hand "
                    "them in, as the update rule `round` does, or slice so that no tensor is cut"
                )

    def check_rates(self, rates: Sequence[float] | None) -> None:
        """Whether these can be the groups' learning rates."""
        groups = max(len(self.optimizer.groups), 1)
        if rates is not None and (len(rates) != groups or not all(isfinite(lr) and lr >= 0 for lr in rates)):
            raise OptimizerError(f"learning rates {tuple(rates)} do not fit: {groups} are needed, each 0 or more")

    def _local_rate(self, segment: Segment, values: Tensor, gradient: Tensor, norms: Norms | None) -> float:
        if segment.name is None or not segment.settings["adapt"]:
            return 1.0
        if segment.name not in self.cut:
            part = slice(segment.start, segment.stop)
            squares = square(values[part]), square(gradient[part])
        else:
            assert norms is not None
            squares = norms.squares[segment.name]
        trust, weight_decay, eps = (number(segment.settings, name) for name in ("trust", "weight_decay", "eps"))
        return local_rate(squares, trust=trust, weight_decay=weight_decay, eps=eps)


def _segments(
    optimizer: Optimizer, space: Space, start: int, stop: int, dtype: torch.dtype, *, exact: bool
) -> list[Segment]:
    """The slice, cut where the group changes; LARS and its norms need it cut where the tensor changes."""
    groups = _groups(optimizer, space)
    runs: list[tuple[int, int, Group | None, str | None]] = []
    for tensor in space.tensors:
        begin, end = max(start, tensor.start), min(stop, tensor.stop)
        if begin >= end:
            continue
        group = groups.get(tensor.name)
        name = tensor.name if optimizer.name == "lars" else None
        if runs and runs[-1][2:] == (group, name):
            runs[-1] = (runs[-1][0], end - start, group, name)
        else:
            runs.append((begin - start, end - start, group, name))
    segments = []
    for begin, end, group, name in runs:
        settings = optimizer.resolved(group)
        number_of = optimizer.groups.index(group) if group else None if optimizer.groups else 0
        if optimizer.own:
            own = Own(optimizer.name, settings, end - begin, dtype)
            segments.append(Segment(begin, end, own, own.lr, settings, name, number_of))
        else:
            known = rule(optimizer.name, settings, exact=exact)
            segments.append(Segment(begin, end, known, number(settings, "lr"), settings, name, number_of))
    return segments


def _groups(optimizer: Optimizer, space: Space) -> dict[str, Group]:
    names = {tensor.name for tensor in space.tensors}
    groups = {name: group for group in optimizer.groups for name in group.tensors}
    for name in groups:
        if name not in names:
            raise OptimizerError(
                f"{optimizer.name}: a group names {name!r}, which the model has not{nearest(name, names)}"
            )
    return groups


def _cut(space: Space, start: int, stop: int) -> tuple[str, ...]:
    """The tensors of which the slice has a part only."""
    edges = {space.at(start).name: space.at(start), space.at(stop - 1).name: space.at(stop - 1)}
    return tuple(name for name, tensor in edges.items() if tensor.start < start or tensor.stop > stop)


def _joined(pieces: Iterable[tuple[int, Tensor]]) -> Tensor:
    """The whole gradient: the one piece there is, or all of them together."""
    parts = [piece for _, piece in pieces]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
