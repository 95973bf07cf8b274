"""Between a user's parameters and the worker: gradients go out, parameters come in, with as few copies as there can be.

Parameters that the wire can write to (on the CPU, contiguous, of the type that the servers keep) are moved into the
worker's own memory, where new values land. All others are copied; if all of them are on a GPU, from where the servers
have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from paceline import params
from paceline.nodes import Worker
from paceline.params import OptimizerError, Space, optimizer_from
from paceline.params.optimizer import LOCAL
from paceline.training.copies import copies_for
from paceline.training.session import Session
from paceline.training.state import State, from_snapshot, to_snapshot

TORCHS_OWN = torch.optim.Optimizer
Closure = Callable[[], Any]


class Link:
    """The parameters of one optimizer that are trained, and the worker that moves them."""

    synchronized = True  # are the parameters those that came from the servers?
    steps_alone = False  # does this worker's own optimizer step?

    def __init__(self, session: Session, optimizer: TORCHS_OWN, iteration: int = 0) -> None:
        everyone = named(optimizer)
        trained = {name: p for name, p in everyone.items() if p.requires_grad}
        if not trained:
            raise OptimizerError("none of the parameters is to be trained; requires_grad is False for all of them")
        self._session = session
        self._optimizer = optimizer
        self._names = list(trained)
        self._parameters = list(trained.values())
        self._frozen = {name: p for name, p in everyone.items() if not p.requires_grad}
        self._settings = _settings(optimizer)
        self._rates = _rates(optimizer)
        dtype = torch.float64 if all(p.dtype == torch.float64 for p in self._parameters) else torch.float32
        space = Space({name: tuple(p.shape) for name, p in trained.items()})
        self._space = space
        self.worker = self._join(trained, dtype, iteration)
        places = [slice(tensor.start, tensor.stop) for tensor in space.tensors]
        self._gradients = _views(self.worker.gradients, places, self._parameters)
        self._of_shard = _of_shard(self.worker, places)
        self._copies = copies_for(self._parameters)
        self._copies.pin(self.worker.gradients, writable=True)
        self._pieces: list[tuple[Tensor, int, slice]] = []  # of parameters that are read in place: shard, and where
        self._copied: list[tuple[Tensor, Tensor]] = []  # parameters that are not, and their values
        if self.worker.in_place:
            self._pieces = list(_pieces(self.worker, places, self._landing(dtype)))
        else:
            self._copies.pin(self.worker.parameters, writable=True)
            for p, value in zip(
                self._parameters, _views(self.worker.parameters, places, self._parameters), strict=True
            ):
                if _can_move(p, dtype):
                    p.data = value
                else:
                    self._copied.append((p, value))
        self._written: set[int] = set()  # the parameters whose gradient of this iteration is in place
        self._pushed: set[int] = set()  # the shards that have theirs
        self._take()
        self._since = monotonic()

    @property
    def _reads_in_place(self) -> bool:
        return all(p.device.type == "cuda" and p.is_contiguous() for p in self._parameters)

    def _landing(self, dtype: torch.dtype) -> list[Tensor]:
        """For each parameter, where its values go from where they are read in place."""
        return self._parameters

    def _join(self, trained: dict[str, Tensor], dtype: torch.dtype, iteration: int) -> Worker:
        """The servers run the user's own optimizer."""
        first = to_snapshot(self._optimizer, trained, self._space, dtype, iteration)
        optimizer = described(self._optimizer, named(self._optimizer))
        return self._session.join(self._space, dtype, optimizer, first, kind=Worker, in_place=self._reads_in_place)

    def step(self, closure: Closure | None = None) -> Any:
        """Push what is not out yet, and wait for the parameters to go on from."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check()
        self._check_settings()
        since = self._since
        self._session.slow_down(monotonic() - since)
        self._write([n for n in range(len(self._parameters)) if n not in self._written])
        begun = monotonic()
        if self._pushed:
            self._push(shard for shard in range(len(self._of_shard)) if shard not in self._pushed)
            self.worker.clock()
        else:
            self._copies.finish()
            self.worker.step()
        self._written.clear()
        self._pushed.clear()
        self._take()
        self._since = monotonic()
        self._session.went_on(begun - since, self._since - begun, self._since - begun)
        return loss

    def take(self, frozen: dict[str, dict[str, Any]]) -> Callable[[], State]:
        """A copy of what the servers have, and what is remembered of parameters that they have not.

        They have set it aside when this returns; the function waits for it.
        """
        taking = self.worker.snapshot()
        kind = type(self._optimizer).__name__
        return lambda: from_snapshot(taking.finish(), kind, self._space, frozen)

    def watch(self, wanted: Callable[[], bool]) -> None:
        """From now on push each shard as soon as backward has all its gradients, where that is wanted."""
        for n, p in enumerate(self._parameters):
            p.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(self._accumulated, n, wanted)
            )

    def _accumulated(self, n: int, wanted: Callable[[], bool], _: Tensor) -> None:
        if not wanted():
            return
        if n in self._written:
            raise OptimizerError(
                f"the gradient of parameter {self._names[n]!r} is on its way to the servers already; with overlap, "
                "all backward passes of a step but the last belong into opt.no_sync()"
            )
        self._write([n])
        self._push(
            shard
            for shard, own in enumerate(self._of_shard)
            if n in own and own <= self._written and shard not in self._pushed
        )

    def _push(self, shards: Iterable[int]) -> None:
        chosen = list(shards)
        if chosen:
            self._pushed.update(chosen)
            self._copies.finish()
            self.worker.push(shards=chosen, answer=False)

    def _write(self, chosen: Sequence[int]) -> None:
        """Put gradients where they are sent from. A parameter that took no part has one of zeros."""
        if not self._written:
            self.worker.writable()
            rates = _rates(self._optimizer)
            self.worker.rates = None if rates == self._rates else rates
        targets, sources = [], []
        for n in chosen:
            gradient = self._parameters[n].grad
            if gradient is None:
                self._gradients[n].zero_()
            else:
                targets.append(self._gradients[n])
                sources.append(gradient.to_dense() if gradient.is_sparse else gradient)
        self._copies.out(targets, sources)
        self._written.update(chosen)

    def _take(self) -> None:
        """The parameters have come."""
        if self._pieces:
            parts = self.worker.parts
            for part in parts:
                self._copies.pin(part, writable=False)
            self._copies.back(
                [p for p, _, _ in self._pieces], [parts[shard][place] for _, shard, place in self._pieces]
            )
            self._copies.finish()
            self.worker.give_back()
        else:
            self._copies.back([p for p, _ in self._copied], [value for _, value in self._copied])
        torch.autograd.graph.increment_version(self._parameters)

    def _check(self) -> None:
        """What was frozen stays so."""
        for name, p in self._frozen.items():
            if p.grad is not None:
                raise OptimizerError(
                    f"parameter {name!r} has a gradient, but was frozen when the run began, so no server has it; "
                    "set requires_grad before the optimizer is wrapped"
                )

    def _check_settings(self) -> None:
        """What cannot follow a change in mid-run must not change."""
        settings = _settings(self._optimizer)
        if settings != self._settings:
            before, now = next((a, b) for a, b in zip(self._settings, settings, strict=True) if a != b)
            changed = {key: now.get(key) for key in before if before[key] != now.get(key)}
            raise OptimizerError(
                f"{changed} of the optimizer changed during the run; only lr can "
                "(OneCycleLR and CyclicLR need cycle_momentum=False)"
            )


def named(optimizer: TORCHS_OWN) -> dict[str, Tensor]:
    """All parameters by name: the user's own names if the optimizer has them, else group and place in it."""
    found: dict[str, Tensor] = {}
    for number, group in enumerate(optimizer.param_groups):
        names = group.get("param_names") or [f"{number}.{n}" for n in range(len(group["params"]))]
        found.update(zip(names, group["params"], strict=True))
    return found


def described(optimizer: TORCHS_OWN, everyone: dict[str, Tensor]) -> params.Optimizer:
    """The optimizer as it travels, without what is frozen."""
    described = optimizer_from(optimizer, {id(p): name for name, p in everyone.items()})
    groups = (
        replace(group, tensors=tuple(name for name in group.tensors if everyone[name].requires_grad))
        for group in described.groups
    )
    return replace(described, groups=tuple(groups))


def _rates(optimizer: TORCHS_OWN) -> tuple[float, ...] | None:
    if not all("lr" in group for group in optimizer.param_groups):
        return None
    return tuple(float(group["lr"]) for group in optimizer.param_groups)


def _settings(optimizer: TORCHS_OWN) -> list[dict[str, Any]]:
    known = [key for key in optimizer.defaults if key not in LOCAL and key != "lr"]
    return [{key: group[key] for key in known} for group in optimizer.param_groups]


def _views(flat: Tensor, places: Sequence[slice], like: Sequence[Tensor]) -> list[Tensor]:
    return [flat[place].view(p.shape) for place, p in zip(places, like, strict=True)]


def _pieces(
    worker: Worker, places: Sequence[slice], parameters: Sequence[Tensor]
) -> Iterator[tuple[Tensor, int, slice]]:
    """Parts of parameters that are whole in one shard, flat: which shard, and where in it."""
    for p, place in zip(parameters, places, strict=True):
        flat = p.detach().view(-1)
        for shard in worker.places:
            start, stop = max(place.start, shard.start), min(place.stop, shard.stop)
            if start < stop:
                part = flat[start - place.start : stop - place.start]
                yield part, shard.shard, slice(start - shard.start, stop - shard.start)


def _of_shard(worker: Worker, places: Sequence[slice]) -> list[set[int]]:
    """Which parameters each shard has a part of."""
    return [
        {n for n, place in enumerate(places) if place.start < shard.stop and shard.start < place.stop}
        for shard in worker.places
    ]


def _can_move(p: Tensor, dtype: torch.dtype) -> bool:
    return p.device.type == "cpu" and p.dtype == dtype and p.is_contiguous()
