"""Norms of tensors that are cut between shards: each tells the others its part of a round, and waits for theirs.

LARS scales a tensor's step by the norms of the whole tensor. A shard that closes rounds sends its parts to those that
it shares a tensor with, its partners, and steps once all of them have closed the same rounds. That cannot deadlock:
workers push an iteration to all shards before they wait for any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.nodes.messages import Place
from paceline.params import Space
from paceline.params.norms import Norms


def partners(places: Sequence[Place], space: Space) -> dict[int, set[int]]:
    """With which other shards each shard shares a tensor."""
    sharing: dict[int, set[int]] = {place.shard: set() for place in places}
    for tensor in space.tensors:
        holders = {place.shard for place in places if place.start < tensor.stop and tensor.start < place.stop}
        for shard in holders if tensor.size else ():
            sharing[shard] |= holders - {shard}
    return sharing


class NormExchange:
    """One shard's side of it."""

    def __init__(self, shard: int, others: set[int]) -> None:
        self.shard = shard
        self.others = others
        self._closed = dict.fromkeys(others, 0)  # up to which round each has closed
        self._parts: dict[int, dict[int, Norms]] = {}  # by round and shard

    def mine(self, rounds: Mapping[int, Norms]) -> None:
        for round_, norms in rounds.items():
            self._parts.setdefault(round_, {})[self.shard] = norms

    def theirs(self, shard: int, to: int, rounds: Mapping[int, Norms]) -> None:
        """A partner has closed the rounds before `to`; these of them had gradients."""
        if shard in self._closed:
            self._closed[shard] = max(self._closed[shard], to)
            for round_, norms in rounds.items():
                self._parts.setdefault(round_, {})[shard] = norms

    def complete(self, to: int) -> bool:
        """Have all partners closed the rounds before `to`?"""
        return all(closed >= to for closed in self._closed.values())

    def total(self, round_: int) -> Norms:
        """The norms of a round, added in the order of the shards, so that all get the same."""
        parts = self._parts.pop(round_, {})
        return Norms.total(parts[shard] for shard in sorted(parts))

    def forget(self, before: int) -> None:
        """Parts of rounds that this shard had no gradients of."""
        for round_ in [round_ for round_ in self._parts if round_ < before]:
            del self._parts[round_]
