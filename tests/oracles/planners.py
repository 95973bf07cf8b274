"""ElasticBSP's planners, written down as the paper has them: naive search, GridScan, FullGridScan and ZipLine.

A point is (e, p, i): worker p ends its i-th iteration from now at the time e. Workers count from 0, iterations from 1.
Each search returns the set Z* as a dictionary from worker to point.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf

Matrix = Sequence[Sequence[float]]
Point = tuple[float, int, int]
Z_set = dict[int, Point]


def points(M: Matrix) -> list[list[Point]]:
    return [[(e, p, i) for i, e in enumerate(row, start=1)] for p, row in enumerate(M)]


def d(Z: Z_set) -> float:
    """The time from the first to the last."""
    return barrier(Z) - min(e for e, _, _ in Z.values())


def barrier(Z: Z_set) -> float:
    return max(e for e, _, _ in Z.values())


def stops(Z: Z_set) -> list[int]:
    return [Z[p][2] for p in sorted(Z)]


def naive_search(M: Matrix) -> list[Z_set]:
    """All of the R^n combinations with the least d, in no particular order."""
    combinations = [{p: point for point in combination for p in [point[1]]} for combination in product(*points(M))]
    least = min(d(Z) for Z in combinations)
    return [Z for Z in combinations if d(Z) == least]


def GridScan(M: Matrix) -> Z_set:
    p_b = 0
    for p in range(len(M)):
        if M[p][0] < M[p_b][0]:
            p_b = p
    return _scan(M, [p_b])


def FullGridScan(M: Matrix) -> Z_set:
    return _scan(M, list(range(len(M))))


def _scan(M: Matrix, designated: list[int]) -> Z_set:
    """Algorithm 1 from its first loop on, for each designated row in turn."""
    Z_best: Z_set = {}
    d_best = inf
    for p_b in designated:
        for point in points(M)[p_b]:
            Z: Z_set = {}
            Z[p_b] = point
            for p, row in enumerate(points(M)):
                if p != p_b:
                    nearest = row[0]
                    for candidate in row:
                        if abs(candidate[0] - point[0]) < abs(nearest[0] - point[0]):
                            nearest = candidate
                    Z[p] = nearest
            d_Z = d(Z)
            if d_Z < d_best:
                Z_best, d_best = Z, d_Z
    return Z_best


def ZipLine(M: Matrix) -> Z_set:
    """Algorithm 2. When the points run out before Z is full again, there is no further Z to look at."""
    n = len(M)
    Z: Z_set = {}
    Omega = sorted(point for row in points(M) for point in row)
    while len(Z) < n:
        omega = Omega.pop(0)
        Z[omega[1]] = omega  # an old element of the same worker is removed
    Z_best, d_best = dict(Z), d(Z)
    while Omega:
        first = min(Z.values())
        del Z[first[1]]
        while len(Z) < n:
            if not Omega:
                return Z_best
            omega = Omega.pop(0)
            Z[omega[1]] = omega
        d_Z = d(Z)
        if d_Z < d_best:
            Z_best, d_best = dict(Z), d_Z
    return Z_best
