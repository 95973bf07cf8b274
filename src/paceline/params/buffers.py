"""Two buffers for the values of a shard, so that they can be read while they are updated.

Readers borrow the live one; while they do, an update goes to the other, which is live from then on. So a reader never
sees a mix of two versions, and nothing waits unless both buffers are lent.
"""

from __future__ import annotations

from torch import Tensor


class StoreError(RuntimeError):
    """Something was asked of a store that it cannot do in its present state."""


class Buffers:
    def __init__(self, both: tuple[Tensor, Tensor]) -> None:
        self.live = 0
        self.readers = [0, 0]
        self._both = both

    def __getitem__(self, buffer: int) -> Tensor:
        return self._both[buffer]

    @property
    def values(self) -> Tensor:
        """The live buffer."""
        return self._both[self.live]

    def lend(self) -> int:
        """A reader starts on the live buffer; no update writes there until it is given back. Returns which it is."""
        self.readers[self.live] += 1
        return self.live

    def give_back(self, buffer: int) -> None:
        """A reader is done with a buffer."""
        if buffer not in (0, 1) or not self.readers[buffer]:
            raise StoreError(f"buffer {buffer} is not lent")
        self.readers[buffer] -= 1

    @property
    def can_update(self) -> bool:
        """Whether there is a buffer that nobody reads. If not, wait until one is given back."""
        return not (self.readers[0] and self.readers[1])

    def writable(self, *, rather_other: bool = False) -> int:
        """The buffer to update: the live one unless it is lent, or the other is free and would be better."""
        other = 1 - self.live
        if not self.readers[other] and (self.readers[self.live] or rather_other):
            return other
        if not self.readers[self.live]:
            return self.live
        raise StoreError("both buffers are lent; wait until one is given back (can_update)")
