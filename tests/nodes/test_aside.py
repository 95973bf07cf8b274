"""What has come before it may be put in place: whatever comes next, it is put there whole, and once."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.nodes.aside import Aside
from paceline.nodes.messages import Place
from paceline.nodes.replica import Replica
from paceline.params import Space
from paceline.wire import Incoming
from tests.effort import cases

ELEMENTS = 10
BYTES = 4 * ELEMENTS


def block(version: int) -> memoryview:
    return memoryview(bytearray(torch.full((ELEMENTS,), float(version)).numpy().tobytes()))


STORY = st.lists(
    st.sampled_from(["starts to land", "lands", "is lent", "is old", "is put", "is outdated"]), max_size=40
)


@given(story=STORY)
@settings(max_examples=cases(200), deadline=None)
def test_what_is_kept_is_the_newest_that_is_complete_whatever_is_coming_in(story: list[str]) -> None:
    aside, target = Aside([4, BYTES], torch.float32), torch.zeros(ELEMENTS)
    kept: int | None = None
    for version, what in enumerate(story, 1):
        match what:
            case "starts to land":
                aside.landing(1)[: BYTES // 2] = b"\xff" * (BYTES // 2)
            case "lands":
                there = aside.landing(1)
                there[:] = block(version)
                assert aside.landed(1, there)
                aside.keep(1, there, version)
                kept = version
            case "is lent":
                lent = block(version)
                assert not aside.landed(1, lent)
                aside.keep(1, lent, version)
                lent[:] = b"\xff" * BYTES
                kept = version
            case "is old":
                aside.landing(1)[:] = block(-1)
            case "is outdated":
                aside.forget(1)
                kept = None
            case "is put":
                assert aside.put(1, target) == kept
                if kept is not None:
                    assert (target == kept).all()
                kept = None
        assert aside.nbytes <= 2 * BYTES
    assert aside.put(0, torch.zeros(1)) is None


def test_nothing_takes_memory_before_it_is_needed() -> None:
    assert Aside([BYTES, BYTES], torch.float32).nbytes == 0


def test_what_must_last_is_not_left_in_the_servers_memory() -> None:
    """A block that the next start may have to do without is copied; any other is read where it is, and given back."""
    replica = Replica(Space({"values": (ELEMENTS,)}), torch.float32, in_place=True)
    replica.arrange([Place(0, 0, ELEMENTS, 0)])
    for lasting in (False, True):
        released: list[bool] = []
        theirs = block(7)
        replica.take(0, Incoming(b"", theirs, lambda released=released: released.append(True)), lasting=lasting)  # type: ignore[misc]
        assert bool(released) == lasting
        theirs[:] = block(8)
        assert (replica.parts[0] == (7 if lasting else 8)).all()
    replica.segment.close()
