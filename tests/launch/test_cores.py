"""Cores are shared out so that nobody is in anybody's way, where there are enough."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.launch.cores import Cores, assign


def test_some() -> None:
    assert assign([0, 1], 2, 1) == Cores(1, ((), ()), ((),))
    assert assign([0, 1, 2], 2, 1) == Cores(1, ((0,), (1,)), ((2,),))
    assert assign([4, 5, 6, 7, 8, 9, 10, 11], 3, 1) == Cores(2, ((4, 5), (6, 7), (8, 9)), ((10, 11),))
    assert assign([0, 1, 2, 3], 1, 4) == Cores(4, ((),), ((), (), (), ()))


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(1, 40), st.integers(1, 10))
def test_nobody_shares_and_nobody_is_left_out(cores: set[int], workers: int, servers: int) -> None:
    assigned = assign(sorted(cores), workers, servers)
    given_out = [core for share in assigned.workers + assigned.servers for core in share]
    assert len(assigned.workers) == workers
    assert len(assigned.servers) == servers
    assert len(given_out) == len(set(given_out))
    assert cores.issuperset(given_out)
    assert assigned.threads >= 1
    if len(cores) >= workers + servers:
        assert {len(share) for share in assigned.workers} == {assigned.threads}
        assert max(map(len, assigned.servers)) - min(map(len, assigned.servers)) <= 1
        assert min(map(len, assigned.servers)) >= 1
        assert len(given_out) == len(cores)
    else:
        assert not given_out
