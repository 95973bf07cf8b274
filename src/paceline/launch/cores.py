"""Which cores and how many threads each node of one machine gets."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Cores(Struct, frozen=True):
    """`threads` are of each worker; a server has one. Without cores for everyone nobody is bound to any."""

    threads: int
    workers: tuple[tuple[int, ...], ...]
    servers: tuple[tuple[int, ...], ...]


def assign(cores: Sequence[int], workers: int, servers: int) -> Cores:
    """A core for each server, the others shared out evenly; if there are too few, all of them for everyone.

    What is left over goes to the servers, which can use a second one.
    """
    left = len(cores) - servers
    if left < workers:
        return Cores(max(1, len(cores) // workers), ((),) * workers, ((),) * servers)
    each = left // workers
    shares = tuple(tuple(cores[n * each : (n + 1) * each]) for n in range(workers))
    rest = cores[each * workers :]
    return Cores(each, shares, tuple(tuple(rest[n::servers]) for n in range(servers)))
