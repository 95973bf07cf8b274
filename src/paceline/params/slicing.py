"""Which server holds which part of the parameters.

`elastic` gives every server the same number of elements, to less than 1 % of the mean, whatever the tensors' sizes: a
large tensor is cut, small ones are packed, and where a tensor ends close to an even cut, the cut goes there. When
servers come or go, `Slicing.rebalance` moves no more than the newcomers lack and the others have too much.

`by_key` is what PS-Lite does by default, kept for comparison: as many tensors for every server, however large they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct

from paceline.params.space import ParameterError, Space

NEAR = 0.002  # of a server's share: how far an even cut may be moved to where a tensor ends


class Slice(Struct, frozen=True):
    """The elements from `start` up to `stop`, not included, on one server."""

    start: int
    stop: int
    server: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Move(Struct, frozen=True):
    """These elements go from one server to another; from None if the server that had them is gone."""

    start: int
    stop: int
    source: int | None
    target: int

    @property
    def size(self) -> int:
        return self.stop - self.start


class Slicing(Struct, frozen=True):
    """The whole row, cut into slices in its order."""

    slices: tuple[Slice, ...]

    @property
    def size(self) -> int:
        return self.slices[-1].stop

    def loads(self) -> dict[int, int]:
        """How many elements each server holds."""
        loads: dict[int, int] = {}
        for piece in self.slices:
            loads[piece.server] = loads.get(piece.server, 0) + piece.size
        return loads

    def of(self, server: int) -> list[Slice]:
        return [piece for piece in self.slices if piece.server == server]

    def rebalance(self, servers: Sequence[int], *, lost: Iterable[int] = ()) -> tuple[Slicing, list[Move]]:
        """The slicing for these servers that is even and moves the fewest elements, and the moves.

        Servers that are no longer among them hand over what they have; those that are `lost` cannot.
        """
        shares = _shares(self.size, servers, self.loads())
        kept: list[Slice] = []
        spare: list[Slice] = []
        room = dict(shares)
        for piece in self.slices:
            stays = min(piece.size, room.get(piece.server, 0))
            if stays:
                room[piece.server] -= stays
                kept.append(Slice(piece.start, piece.start + stays, piece.server))
            if stays < piece.size:
                spare.append(Slice(piece.start + stays, piece.stop, piece.server))
        gone = set(lost)
        moves: list[Move] = []
        for server in servers:
            while room[server]:
                piece = spare.pop(0)
                stop = min(piece.stop, piece.start + room[server])
                room[server] -= stop - piece.start
                source = None if piece.server in gone else piece.server
                moves.append(Move(piece.start, stop, source, server))
                if stop < piece.stop:
                    spare.insert(0, Slice(stop, piece.stop, piece.server))
        return Slicing(_joined(kept + [Slice(move.start, move.stop, move.target) for move in moves])), moves


def elastic(space: Space, servers: Sequence[int]) -> Slicing:
    """An even slicing, each server's elements in one piece."""
    _check(servers)
    ends = sorted({tensor.stop for tensor in space.tensors})
    share = space.size / len(servers)
    cuts = [0]
    for n in range(1, len(servers)):
        even = round(n * share)
        near = ends[max(0, bisect_left(ends, even) - 1) : bisect_left(ends, even) + 1]
        closest = min(near, key=lambda end: abs(end - even))
        cuts.append(closest if abs(closest - even) <= NEAR * share else even)
    cuts.append(space.size)
    pieces = [Slice(start, stop, server) for server, start, stop in zip(servers, cuts, cuts[1:], strict=False)]
    return Slicing(tuple(piece for piece in pieces if piece.size))


def by_key(space: Space, servers: Sequence[int]) -> Slicing:
    """As many tensors for each server, in their order."""
    _check(servers)
    keys = len(space.tensors)
    pieces = [
        Slice(tensor.start, tensor.stop, servers[key * len(servers) // keys])
        for key, tensor in enumerate(space.tensors)
        if tensor.size
    ]
    return Slicing(_joined(pieces))


def _shares(size: int, servers: Sequence[int], loads: dict[int, int]) -> dict[int, int]:
    """How many elements each server is to hold. Those that hold the most get the elements that are left over."""
    _check(servers)
    share, left_over = divmod(size, len(servers))
    fullest = sorted(servers, key=lambda server: -loads.get(server, 0))
    return {server: share + (rank < left_over) for rank, server in enumerate(fullest)}


def _joined(pieces: Iterable[Slice]) -> tuple[Slice, ...]:
    """In order, with neighbours on the same server made one."""
    joined: list[Slice] = []
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if joined and joined[-1].server == piece.server and joined[-1].stop == piece.start:
            joined[-1] = Slice(joined[-1].start, piece.stop, piece.server)
        else:
            joined.append(piece)
    return tuple(joined)


def _check(servers: Sequence[int]) -> None:
    if not servers or len(set(servers)) != len(servers):
        raise ParameterError(f"the servers {list(servers)} cannot share the parameters; give at least one, each once")
