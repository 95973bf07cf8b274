"""What a shard's host remembers of what workers were given, against a copy for each of them.

The host is driven by hand, on the in-memory wire and in one thread: answers may be late, so that updates have to wait
for a buffer; workers leave and come back in another life; the model is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paceline.nodes import Job
from paceline.nodes import messages as m
from paceline.nodes.shard_host import ShardHost
from paceline.params import Optimizer, Space
from paceline.params.compensation import SQUARES
from paceline.wire import Incoming
from tests.effort import cases
from tests.wires import End, Wires, wires

SIZE, WORKERS, LR = 5, 3, 0.5
MODELS = {"asp": None, "dc_asgd(lam=3)": 3.0, "dc_asgd(lam=1)": 1.0, "ssp(s=inf)": None}


class Seat:
    """One life of a worker, as the host sees it: what it has asked for, and what it has got."""

    def __init__(self, member: m.Member, end: End) -> None:
        self.member = member
        self.end = end
        self.next = 0  # the iteration to push
        self.pushed = self.asked = True  # it has asked for its first parameters

    def read(self) -> dict[int, Tensor]:
        """What has been granted so far, by iteration."""
        found = {}
        for header, payload in self.end.received:
            message = m.decode(header)
            if isinstance(message, m.Parameters) and payload is not None:
                found[message.iteration] = torch.frombuffer(bytearray(payload), dtype=torch.float32)
                if self.asked and message.iteration == max(found):
                    self.next = message.next
        return found


class Plain:
    """The same in a few lines: everything at once, and a copy of its own for each worker."""

    def __init__(self, values: Tensor, strength: float | None) -> None:
        self.values, self.strength = values, strength
        self.given: dict[int, Tensor] = {}

    def push(self, worker: int, gradient: Tensor, live: int) -> None:
        given, corrected = self.given.get(worker), gradient
        if self.strength is not None and given is not None:
            corrected = gradient + self.strength * gradient * gradient * (self.values - given)
        self.values = self.values - LR / live * corrected

    def pull(self, worker: int) -> Tensor:
        if self.strength is not None:
            self.given[worker] = self.values
        return self.values

    def change(self, strength: float | None) -> None:
        self.strength = strength
        if strength is None:
            self.given.clear()


def host(sync: str, members: list[m.Member], update: Any = None, **options: Any) -> ShardHost:
    place = m.Place(0, 0, SIZE, 0)
    return ShardHost(
        place,
        [place],
        Space({"values": (SIZE,)}),
        torch.float32,
        Job(workers=len(members), sync=sync, update=update),
        Optimizer("sgd", {"lr": LR}),
        members,
        clock=lambda: 0.0,
        tell_partners=lambda *_: None,
        **({"call_at": lambda *_: None} | options),
    )


class Hand:
    """Drives a host and the plain one beside it."""

    def __init__(self, made: Wires, sync: str) -> None:
        self.wires = made
        self.generator = torch.Generator().manual_seed(0)
        self.calls: list[Callable[[], object]] = []  # answers that are late
        first = torch.randn(SIZE, generator=self.generator)
        members = [m.Member(worker, 0) for worker in range(WORKERS)]
        self.host = host(sync, members)
        self.plain = Plain(first, MODELS[sync])
        self.expected: dict[tuple[m.Member, int], Tensor] = {}
        self.seats: dict[int, Seat] = {}
        self.lives = dict.fromkeys(range(WORKERS), 0)
        for member in members:
            self._sit(member)
        self.host.give_first(members[0], m.Initial(0), incoming(first))
        for seat in self.seats.values():
            self._pull(seat, -1)
        self.settle()

    # What can happen.

    def push(self, worker: int) -> None:
        seat = self.seats.get(worker)
        if seat is None or seat.pushed:
            return
        gradient = torch.randn(SIZE, generator=self.generator)
        seat.pushed = True
        self.host.push(seat.member, m.Push(0, seat.next, seat.next), incoming(gradient))
        self.plain.push(worker, gradient, len(self.seats))

    def pull(self, worker: int) -> None:
        seat = self.seats.get(worker)
        if seat is not None and seat.pushed and not seat.asked:
            self._pull(seat, seat.next)

    def leave(self, worker: int) -> None:
        if worker in self.seats and len(self.seats) > 1:
            self.catch_up(0)
            self.host.leave(self.seats.pop(worker).member)
            self.plain.given.pop(worker, None)

    def come(self, worker: int) -> None:
        if worker not in self.seats:
            self.catch_up(0)
            self.lives[worker] += 1
            member = m.Member(worker, self.lives[worker])
            self.host.join(member)
            self._sit(member)
            self._pull(self.seats[worker], -1)

    def change(self, sync: str) -> None:
        self.host.change(sync)
        self.plain.change(MODELS[sync])

    def be_late(self, worker: int) -> None:
        """An answer is under way for long, and its buffer lent for as long."""
        line = self.host._lines.get(worker)
        if line is not None:
            send, line.send = line.send, lambda *answer: self.calls.append(partial(send, *answer))  # type: ignore
            self.pull(worker)
            line.send = send  # type: ignore[method-assign]

    def catch_up(self, _: int) -> None:
        """All late answers are sent, and what waited for their buffers is done."""
        while self.calls:
            self.calls.pop(0)()
            self.settle()
        assert not self.host._todo

    # What must be.

    def settle(self) -> None:
        """Everything that was sent has come."""
        store = self.host.store
        self.wires.until(lambda: sum(store.buffers.readers) == len(self.calls))
        for seat in self.seats.values():
            for iteration, values in seat.read().items():
                expected = self.expected[seat.member, iteration]
                torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)
                if seat.asked and iteration == max(i for who, i in self.expected if who == seat.member):
                    seat.asked = seat.pushed = False
        backups = self.host._backups
        if not self.host._todo:
            assert (backups is None) == (self.plain.strength is None)
        if backups is not None:
            assert backups.nbytes <= WORKERS * self.host.nbytes
            if not self.host._todo:
                assert backups.nbytes <= len(self.seats) * self.host.nbytes

    def _sit(self, member: m.Member) -> None:
        mine, theirs = self.wires.pair()
        self.seats[member.worker] = Seat(member, mine)
        self.host.connect(theirs.channel, member)

    def _pull(self, seat: Seat, iteration: int) -> None:
        seat.asked = True
        self.expected[seat.member, iteration] = self.plain.pull(seat.member.worker)
        self.host.pull(seat.member, m.Pull(0, iteration))


def incoming(values: Tensor) -> Incoming:
    return Incoming(b"", memoryview(bytearray(values.numpy().tobytes())))


WEIGHTS = {"push": 8, "pull": 5, "be_late": 4, "catch_up": 2, "leave": 1, "come": 2, "change": 2}


@given(seed=st.integers(0, 2**32), sync=st.sampled_from(list(MODELS)))
@settings(max_examples=cases(60), deadline=None)
def test_every_pull_brings_what_a_copy_for_each_worker_would_give(seed: int, sync: str) -> None:
    random = Random(seed)
    with wires("memory", checked=False) as made:
        hand = Hand(made, sync)
        for kind in random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=60):
            getattr(hand, kind)(random.choice(list(MODELS)) if kind == "change" else random.randrange(WORKERS))
            hand.settle()
        hand.catch_up(0)
        for worker in range(WORKERS):
            hand.push(worker)
            hand.pull(worker)
        hand.settle()
        hand.host.close()


@pytest.mark.parametrize("what", ["its worker leaves", "the model is changed"])
def test_a_gradient_that_waits_for_a_buffer_is_corrected_whatever_happens_meanwhile(what: str) -> None:
    with wires("memory", checked=False) as made:
        hand = Hand(made, "dc_asgd(lam=3)")
        for worker in (0, 1):  # two late answers of two versions: both buffers are lent
            hand.push(worker)
            hand.be_late(worker)
        given, before, member = hand.plain.given[2], hand.plain.values, hand.seats[2].member
        gradient = torch.randn(SIZE, generator=hand.generator)
        hand.host.push(member, m.Push(0, 0, 0), incoming(gradient))
        assert hand.host._todo
        if what == "its worker leaves":
            hand.host.leave(member)
        else:
            hand.host.change("asp")
        while hand.calls:
            hand.calls.pop(0)()
        made.until(lambda: sum(hand.host.store.buffers.readers) == 0)
        live = 2 if what == "its worker leaves" else 3
        corrected = gradient + 3.0 * gradient * gradient * (before - given)
        torch.testing.assert_close(hand.host.store.values, before - LR / live * corrected)
        hand.host.close()


def test_a_round_that_closes_after_the_change_counts_as_a_delay_too() -> None:
    """It was begun under `bsp`, so it is still summed; who is given parameters before it closes has the old ones."""
    members, ones = [m.Member(0, 0), m.Member(1, 0)], torch.ones(SIZE)
    with wires("memory", checked=False) as made:
        shard, ends = host("bsp", members), [made.pair() for _ in members]
        for member, (_, theirs) in zip(members, ends, strict=True):
            shard.connect(theirs.channel, member)
        shard.give_first(members[0], m.Initial(0), incoming(torch.zeros(SIZE)))
        shard.push(members[0], m.Push(0, 0, 0), incoming(ones))
        shard.pull(members[0], m.Pull(0, 0))
        shard.change("dc_asgd(lam=3)")  # which grants what was held
        made.until(lambda: sum(shard.store.buffers.readers) == 0)
        shard.push(members[1], m.Push(0, 0, 0), incoming(ones))
        made.until(lambda: bool(torch.equal(shard.store.values, -LR * ones)))  # the mean of two
        shard.push(members[0], m.Push(0, 1, 1), incoming(ones))
        corrected = ones + 3.0 * (-LR * ones)
        torch.testing.assert_close(shard.store.values, -LR * ones - LR / 2 * corrected)
        shard.close()


@pytest.mark.parametrize("update", [None, "round"])
def test_nothing_is_copied_where_nothing_is_corrected(update: Any) -> None:
    """Neither under a model that does not want it nor where gradients are summed."""
    for sync, wanted in (("asp", False), ("dc_asgd(lam=0)", False), ("dc_asgd", update is None)):
        made = host(sync, [m.Member(0, 0)], update)
        assert (made._backups is not None) == (made.store.compensator is not None) == wanted
        made.close()


def test_the_mean_of_the_squares_is_in_a_snapshot_and_a_run_goes_on_from_it() -> None:
    member, gradient = m.Member(0, 0), torch.arange(1.0, SIZE + 1)
    with wires("memory", checked=False) as made:
        first, second, without = (host(sync, [member]) for sync in ["dc_asgd(kind=adaptive)"] * 2 + ["asp"])
        (mine, theirs), (reader, writer) = made.pair(), made.pair()
        for one in (first, second, without):
            one.connect(theirs.channel, member)
        first.give_first(member, m.Initial(0), incoming(torch.zeros(SIZE)))
        first.push(member, m.Push(0, 0, 0), incoming(gradient))
        first.save(writer.channel)
        made.until(lambda: len(reader.received) == 3)
        rows = {m.decode(header).name: payload for header, payload in reader.received[1:]}  # type: ignore[union-attr]
        assert set(rows) == {m.VALUES, SQUARES}
        squares = torch.frombuffer(bytearray(rows[SQUARES] or b""), dtype=torch.float32)
        torch.testing.assert_close(squares, 0.05 * gradient * gradient)
        for one in (second, without):
            one.give_row(member, SQUARES, incoming(squares))
            one.give_first(member, m.Initial(0, 1, 1), incoming(torch.zeros(SIZE)))
        assert second.store.compensator is not None
        assert second.store.compensator.squares is not None
        assert torch.equal(second.store.compensator.squares, squares)
        assert without.store.compensator is None
        for one in (first, second, without):
            one.close()
        assert not mine.errors
