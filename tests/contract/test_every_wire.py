"""What every wire must do, whatever it is made of."""

from __future__ import annotations

import threading
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire import (
    Channel,
    ChannelClosed,
    FrameError,
    HandshakeRefused,
    Limits,
    Loop,
    Segment,
    SlowReader,
    Unreachable,
    WireError,
)
from paceline.wire.stream import TURN
from tests.effort import cases
from tests.wires import PATIENCE, WIRES, End, connect, network, wires

SIZES = [0, 1, 7, 4095, 4096, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 131_072, 200_000, 1 << 20, 5_000_001]

every_wire = pytest.mark.parametrize("wire", WIRES)


# What arrives.


@every_wire
def test_messages_arrive_in_order_and_whole(wire: str) -> None:
    random = Random(1)
    sent: list[tuple[bytes, bytes | None]] = [(b"no payload", None), (b"", None), (bytes(65_536), None)]
    sent += [(b"%d" % size, random.randbytes(size)) for size in SIZES]
    with wires(wire) as made:
        one, other = made.pair()
        for header, payload in sent:
            one.send(header, payload)
        made.until(lambda: len(other.received) == len(sent))
        assert other.received == sent
        made.until(lambda: len(one.done) == len(sent))
        assert one.done == [header for header, _ in sent]
        assert one.channel.queued_bytes == 0


@every_wire
def test_payloads_are_taken_from_any_memory_and_put_where_the_sink_says(wire: str) -> None:
    random = Random(2)
    with wires(wire) as made:
        one, other = made.pair()
        segment = made.share(one, 3_000_000)
        segment.view[:] = content = random.randbytes(3_000_000)
        landing = memoryview(bytearray(8_000_000))
        asked: list[tuple[bytes, int]] = []

        def sink(header: bytes, size: int) -> memoryview:
            asked.append((header, size))
            return landing[3 : 3 + size]

        other.channel.sink = sink
        places = [(0, 3_000_000), (1, 70_002), (12_345, 12_350), (2_900_001, 3_000_000), (5, 65_541), (5, 65_542)]
        for start, stop in places:
            one.send(b"%d" % start, segment.view[start:stop])
            one.send(b"%d" % start, bytearray(content[start:stop]))
        made.until(lambda: len(other.received) == 2 * len(places))
        assert [payload for _, payload in other.received] == [
            content[start:stop] for start, stop in places for _ in range(2)
        ]
        for _, size in asked:
            assert size <= 3_000_000
        made.until(lambda: len(one.done) == 2 * len(places))


@every_wire
def test_big_payloads_in_both_directions_at_once_do_not_block_each_other(wire: str) -> None:
    payload = Random(3).randbytes(20_000_000)
    with wires(wire) as made:
        one, other = made.pair()
        for n in range(3):
            one.send(b"%d" % n, payload)
            other.send(b"%d" % n, payload)
        made.until(lambda: len(one.received) == len(other.received) == 3)
        assert one.received == other.received == [(b"%d" % n, payload) for n in range(3)]
        made.until(lambda: len(one.done) == len(other.done) == 3)


ROOM = 1_100_000  # bytes of the segments that the sequences send from
moves = st.tuples(
    st.integers(0, 1),
    st.sampled_from(["bare", "bytes", "shared", "turn", "pause", "resume"]),
    st.sampled_from([0, 1, 100, 16_384, 16_385, 65_536, 65_537, 1_000_000]),
)


@every_wire
@given(script=st.lists(moves, max_size=25), seed=st.integers(0, 1000))
@settings(max_examples=cases(25), deadline=None)
def test_any_sequence_of_sends_and_pauses_arrives_as_it_was_sent(
    wire: str, script: list[tuple[int, str, int]], seed: int
) -> None:
    random = Random(seed)
    with wires(wire, checked=False) as made:
        ends = made.pair()
        segments = [made.share(end, ROOM) for end in ends]
        for segment in segments:
            segment.view[:] = random.randbytes(ROOM)
        sent: list[list[tuple[bytes, bytes | None]]] = [[], []]
        for n, (who, what, size) in enumerate(script):
            end = ends[who]
            if what == "turn":
                made.loop.run_once(0)
            elif what == "pause":
                end.channel.pause()
            elif what == "resume":
                end.channel.resume()
            else:
                offset = random.randrange(ROOM - size)
                shared = segments[who].view[offset : offset + size]
                payload = None if what == "bare" else bytes(shared) if what == "bytes" else shared
                end.send(b"%d" % n, payload)
                sent[who].append((b"%d" % n, None if payload is None else bytes(payload)))
        for end in ends:
            end.channel.resume()
        made.until(lambda: [len(end.received) for end in ends] == [len(sent[1]), len(sent[0])])
        assert ends[0].received == sent[1]
        assert ends[1].received == sent[0]
        made.until(lambda: [len(end.done) for end in ends] == [len(sent[0]), len(sent[1])])


@every_wire
def test_many_channels_do_not_mix(wire: str) -> None:
    random = Random(4)
    with wires(wire) as made:
        pairs = [made.pair() for _ in range(12)]
        sent: list[list[tuple[bytes, bytes | None]]] = [[] for _ in pairs]
        for _ in range(300):
            n = random.randrange(len(pairs))
            payload = random.randbytes(random.choice([10, 5_000, 100_000]))
            pairs[n][0].send(b"%d" % n, payload)
            sent[n].append((b"%d" % n, payload))
            if random.random() < 0.3:
                made.loop.run_once(0)
        made.until(lambda: all(len(pair[1].received) == len(sent[n]) for n, pair in enumerate(pairs)))
        assert [pair[1].received for pair in pairs] == sent


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "memory"])  # which moves a payload in one go
def test_a_bulk_transfer_lets_others_have_their_turn(wire: str) -> None:
    with wires(wire) as made:
        bulk, landing = made.pair()
        one, other = made.pair()
        other.on_message = lambda incoming: other.channel.send(b"pong")
        rounds = 0

        def ping(incoming: object) -> None:
            nonlocal rounds
            rounds += not landing.received
            one.channel.send(b"ping")

        one.on_message = ping
        bulk.send(b"bulk", bytes(100_000_000))
        one.channel.send(b"ping")
        made.until(lambda: bool(landing.received))
        assert rounds >= 5


def test_one_turn_takes_a_bounded_part_of_what_has_come() -> None:
    with wires("shared-memory", Limits(payload=50_000_000)) as made:
        one, other = made.pair()
        landing = memoryview(bytearray(50_000_000))
        other.channel.sink = lambda header, size: landing
        one.send(b"bulk", b"x" * 50_000_000)
        if 50_000_000 - one.channel.queued_bytes < 2 * TURN:
            pytest.skip("the kernel's buffers are too small here to see it")
        while b"x" not in bytes(landing[:1]):
            made.loop.run_once(0)
        assert bytes(landing).count(b"x") <= 2 * TURN
        made.until(lambda: bool(other.received))


# done().


@every_wire
def test_done_is_never_called_within_send_and_once_for_each(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        for n in range(50):
            one.send(b"%d" % n, bytes(n))
            assert not one.done
        made.until(lambda: len(one.done) == 50)
        assert len(set(one.done)) == 50
        made.until(lambda: len(other.received) == 50)


@every_wire
def test_done_may_send_the_next(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        left = 3_000

        def again() -> None:
            nonlocal left
            left -= 1
            if left:
                one.channel.send(b"next", b"x", again)

        one.channel.send(b"first", b"x", again)
        made.until(lambda: not left)
        made.until(lambda: len(other.received) == 3_000)


@every_wire
def test_memory_is_free_once_done_is_called(wire: str) -> None:
    """Overwrites each payload as soon as its sender may, and whatever was received must not have changed."""
    with wires(wire) as made:
        one, other = made.pair()
        segment = made.share(one, 1_000_000)
        size = 250_000
        free = [0, 1, 2, 3]
        sent = 0

        def send_next() -> None:
            nonlocal sent
            while free and sent < 40:
                place = free.pop()
                view = segment.view[place * size : (place + 1) * size]
                view[:] = bytes([sent]) * size

                def done(place: int = place, view: memoryview = view) -> None:
                    view[:] = b"\xff" * size
                    free.append(place)
                    send_next()

                one.channel.send(b"%d" % sent, view, done)
                sent += 1

        send_next()
        made.until(lambda: len(other.received) == 40)
        assert other.received == [(b"%d" % n, bytes([n]) * size) for n in range(40)]


def test_a_reference_is_out_until_the_receiver_releases_it() -> None:
    with wires("shared-memory") as made:
        one, other = made.pair()
        segment = made.share(one, 200_000)
        other.keep = True
        one.send(b"a", segment.view[:100_000])
        one.send(b"b", segment.view[100_000:])
        one.send(b"small", segment.view[:65_536])
        made.until(lambda: len(other.kept) == 3 and one.done == [b"small"])
        assert one.channel.queued_bytes == 0
        first, second, third = other.kept
        assert first.payload is not None
        assert first.payload.readonly
        segment.view[0] = 77
        assert first.payload[0] == 77, "it must lie in the same memory"
        second.release()
        second.release()
        made.until(lambda: one.done == [b"small", b"b"])
        first.release()
        third.release()
        made.until(lambda: one.done == [b"small", b"b", b"a"])
        one.channel.close()
        made.until(lambda: not made.loop.channels and bool(other.errors))
        assert one.done == [b"small", b"b", b"a"]
        del first, second, third
        other.kept.clear()


@every_wire
@pytest.mark.parametrize("who", ["sender closes", "receiver closes", "sender aborts", "receiver aborts"])
def test_the_end_of_a_channel_frees_everything(wire: str, who: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        segment = made.share(one, 200_000)
        other.keep = True
        one.send(b"lent", segment.view)
        made.until(lambda: len(other.received) == 1)
        other.channel.pause()
        for n in range(5):
            one.send(b"%d" % n, bytes(3_000_000))
        end = one if who.startswith("sender") else other
        if who.endswith("closes"):
            end.channel.close("enough")
        else:
            end.channel.abort()
        other.channel.resume()
        made.until(lambda: len(one.done) == 6 and len(one.errors + other.errors) == 1 and not made.loop.channels)
        assert sorted(one.done) == sorted([b"lent"] + [b"%d" % n for n in range(5)])
        assert len(one.errors) == (end is other)
        assert len(other.errors) == (end is one)
        with pytest.raises(ChannelClosed):
            one.send(b"too late")
        other.kept.clear()


# Pauses.


@every_wire
def test_a_sink_without_room_pauses_that_channel_alone(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        third, fourth = made.pair()
        room = False
        asked: list[bytes] = []

        def sink(header: bytes, size: int) -> memoryview | None:
            asked.append(header)
            return memoryview(bytearray(size)) if room else None

        other.channel.sink = sink
        sent: list[tuple[bytes, bytes | None]] = [(b"bare", None), (b"blocked", bytes(300_000)), (b"behind", None)]
        for header, payload in sent:
            one.send(header, payload)
        third.send(b"elsewhere", bytes(300_000))
        other.send(b"the other way", bytes(300_000))
        made.until(lambda: bool(fourth.received) and bool(one.received) and bool(asked))
        made.until(lambda: other.received == [(b"bare", None)])
        for _ in range(20):
            made.loop.run_once(0)
        assert asked == [b"blocked"]
        other.channel.resume()
        made.until(lambda: len(asked) == 2)
        assert other.received == [(b"bare", None)]
        room = True
        other.channel.resume()
        made.until(lambda: len(other.received) == 3)
        assert other.received == sent


@every_wire
def test_pauses_and_resumes_within_a_message(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()

        def pause(incoming: object) -> None:
            other.channel.pause()
            if len(other.received) % 2:
                other.channel.resume()

        other.on_message = pause
        for n in range(10):
            one.send(b"%d" % n, bytes(10))
        for n in range(2, 11, 2):
            made.until(lambda: len(other.received) == n)  # noqa: B023
            for _ in range(5):
                made.loop.run_once(0)
            assert len(other.received) == n
            other.channel.resume()


# Limits.


@every_wire
def test_what_the_other_would_refuse_is_not_sent(wire: str) -> None:
    with wires(wire, Limits(header=100, payload=1_000)) as made:
        one, other = made.pair()
        one.send(bytes(100), bytes(1_000))
        for header, payload in [(bytes(101), None), (bytes(101), b""), (b"", bytes(1_001))]:
            with pytest.raises(FrameError, match="at most 100"):
                one.send(header, payload)
        made.until(lambda: len(other.received) == 1)
        assert not one.errors


@every_wire
@pytest.mark.parametrize("size", [10_000, 60_000])
def test_a_reader_that_is_too_slow_is_left_and_named(wire: str, size: int) -> None:
    with wires(wire, Limits(queued=500_000)) as made:
        one, other = made.pair()
        one.channel.peer = "worker 7"
        other.channel.pause()
        most = 0
        with pytest.raises(ChannelClosed):
            for n in range(20_000):
                one.send(b"%d" % n, bytes(size))
                most = max(most, one.channel.queued_bytes)
        assert most < 600_000
        made.until(lambda: bool(one.errors))
        assert isinstance(one.errors[0], SlowReader)
        assert "worker 7" in str(one.errors[0])
        assert made.loop.counters["slow reader"] == 1
        other.channel.resume()
        made.until(lambda: bool(other.errors))


@every_wire
def test_bulk_payloads_do_not_count_as_held_for_a_slow_reader(wire: str) -> None:
    with wires(wire, Limits(queued=500_000)) as made:
        one, other = made.pair()
        other.channel.pause()
        payload = bytes(5_000_000)
        for n in range(20):
            one.send(b"%d" % n, payload)
        assert one.channel.queued_bytes > 80_000_000
        assert not one.channel.closed
        other.channel.resume()
        made.until(lambda: len(other.received) == 20)


# The end.


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "memory"])
def test_a_paused_channel_learns_that_its_peer_is_gone_when_it_sends(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        one.channel.pause()
        other.channel.abort()

        def send() -> bool:
            if not one.channel.closed:
                one.send(b"are you there?")
            return bool(one.errors)

        made.until(send)
        assert isinstance(one.errors[0], ChannelClosed)


@every_wire
def test_a_reason_is_told_to_the_other_side(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        other.channel.peer = "server 2"
        one.send(b"last words", bytes(3_000_000))
        one.channel.close("lunch")
        made.until(lambda: bool(other.errors))
        assert other.received == [(b"last words", bytes(3_000_000))]
        assert type(other.errors[0]) is ChannelClosed
        assert "server 2" in str(other.errors[0])
        assert "lunch" in str(other.errors[0])
        assert not one.errors
        made.until(lambda: not made.loop.channels)
        assert one.done == [b"last words"]


@every_wire
def test_two_that_leave_at_the_same_time_need_not_wait_for_each_other(wire: str) -> None:
    with wires(wire, clock=lambda: 0.0) as made:
        one, other = made.pair()
        for end in (one, other):
            end.send(b"bulk", bytes(10_000_000))
            end.channel.close("I am leaving")
        made.until(lambda: not made.loop.channels)


@every_wire
def test_a_reason_gets_through_while_the_other_is_sending(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        for n in range(4):
            one.send(b"%d" % n, bytes(20_000_000))
        made.until(lambda: bool(other.received))
        other.channel.close("parameter 'fc.weight' has another shape")
        made.until(lambda: bool(one.errors))
        assert "fc.weight" in str(one.errors[0])
        made.until(lambda: len(one.done) == 4)


@every_wire
def test_an_abrupt_end_is_noticed(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()
        one.channel.abort()
        made.until(lambda: bool(other.errors))
        assert type(other.errors[0]) is ChannelClosed
        assert made.loop.counters["closed"] == 1


@every_wire
@pytest.mark.parametrize("where", ["sink", "message"])
def test_a_wire_error_of_a_handler_ends_its_channel_only_and_both_know_why(wire: str, where: str) -> None:
    class Bad(WireError):
        kind = "bad push"

    def refuse(*_: object) -> None:
        raise Bad("worker 3", "parameter 'fc.weight' has 12 elements, not 10")

    with wires(wire) as made:
        one, other = made.pair()
        third, fourth = made.pair()
        if where == "sink":
            other.channel.sink = refuse
        else:
            other.on_message = refuse
        one.send(b"push", bytes(2_000_000))
        made.until(lambda: bool(one.errors) and bool(other.errors))
        assert isinstance(other.errors[0], Bad)
        assert type(one.errors[0]) is ChannelClosed
        assert "fc.weight" in str(one.errors[0])
        assert made.loop.counters["bad push"] == 1
        third.send(b"still here", bytes(100_000))
        made.until(lambda: bool(fourth.received))


@every_wire
def test_a_node_that_survives_its_own_mistake_misses_no_message(wire: str) -> None:
    with wires(wire) as made:
        one, other = made.pair()

        def stumble(incoming: object) -> None:
            if len(other.received) == 1:
                raise ZeroDivisionError

        other.on_message = stumble
        for n in range(3):
            one.send(b"%d" % n)
        with pytest.raises(ZeroDivisionError):
            made.until(lambda: len(other.received) == 3)
        made.until(lambda: len(other.received) == 3)
        assert not other.errors


@every_wire
def test_what_was_sent_before_anybody_listens_is_kept(wire: str) -> None:
    with wires(wire) as made:
        channel = connect(made.loop, made.network, made.listener.address)
        told: list[int] = []
        for n in range(5):
            channel.send(b"%d" % n, bytes(200_000), lambda: told.append(1))
        made.until(lambda: bool(made.accepted))
        other = End(made.loop, made.accepted[0])
        one = End(made.loop, channel)
        made.until(lambda: len(other.received) == 5 and len(told) == 5)
        assert one.channel.hello == b"listener"
        assert other.channel.hello == b"connector"


@every_wire
def test_a_node_may_talk_at_once_to_who_has_just_connected(wire: str) -> None:
    with wires(wire) as made:
        segment = Segment(100_000, "test")
        ends: list[End] = []

        def greet(channel: Channel, hello: bytes) -> None:
            ends.append(End(made.loop, channel))
            channel.share(segment)
            ends[0].send(b"welcome", segment.view)

        listener = made.network.listen(b"", "config")
        made.loop.listen(listener, greet)
        channel = connect(made.loop, made.network, listener.address)
        for _ in range(5):
            made.loop.run_once(0)
        end = End(made.loop, channel)
        made.until(lambda: bool(end.received))
        assert end.received == [(b"welcome", bytes(100_000))]
        made.until(lambda: ends[0].done == [b"welcome"])


@every_wire
def test_a_channel_that_ended_before_it_was_added_says_so(wire: str) -> None:
    with wires(wire) as made:
        channel = connect(made.loop, made.network, made.listener.address)
        made.until(lambda: bool(made.accepted))
        channel.close("changed my mind")
        other = End(made.loop, made.accepted[0])
        one = End(made.loop, channel)
        made.until(lambda: bool(other.errors) and bool(one.errors))
        assert "changed my mind" in str(other.errors[0])


@every_wire
def test_the_end_of_a_loop_tells_all_peers(wire: str) -> None:
    with wires(wire) as made:
        loop = Loop()
        ends = []
        for _ in range(3):
            End(loop, connect(made.loop, made.network, made.listener.address))
            made.until(lambda: bool(made.accepted))
            ends.append(End(made.loop, made.accepted.pop()))
        thread = threading.Thread(target=loop.close)
        thread.start()
        made.until(lambda: all(end.errors for end in ends))
        assert all("the node has ended" in str(end.errors[0]) for end in ends)
        thread.join(PATIENCE)


# Getting in.


@every_wire
@pytest.mark.parametrize(
    ("token", "config", "code"),
    [("other", "config", "token"), (None, "config", "token"), ("secret", "x", "configuration")],
)
def test_who_may_not_come_in_is_told_why(wire: str, token: str | None, config: str, code: str) -> None:
    with wires(wire, token="secret") as made:
        stranger = network(wire, token=token)
        if wire == "memory":
            stranger._listeners = made.network._listeners  # type: ignore[union-attr]
        with pytest.raises(HandshakeRefused) as refused:
            connect(made.loop, stranger, made.listener.address, config=config)
        assert refused.value.code == code
        assert refused.value.told
        assert made.loop.counters[f"refused: {code}"] == 1
        assert not made.accepted
        one, other = made.pair()
        one.send(b"I may")
        made.until(lambda: bool(other.received))


@every_wire
def test_a_node_may_refuse_a_peer_for_its_own_reasons(wire: str) -> None:
    with wires(wire) as made:

        def refuse(channel: object, hello: bytes) -> None:
            raise HandshakeRefused("", "rank", f"there is a {hello.decode()} already")

        second = made.network.listen(b"", "config")
        made.loop.listen(second, refuse)
        end = End(made.loop, connect(made.loop, made.network, second.address, b"worker 3"))
        made.until(lambda: bool(end.errors))
        assert "there is a worker 3 already" in str(end.errors[0])
        assert made.loop.counters["refused: rank"] == 1


@every_wire
def test_nobody_answers_where_nobody_listens(wire: str) -> None:
    with wires(wire) as made:
        silent = made.network.listen()
        silent.close()
        made.listener.close()
        made.listener.close()
        for address in (silent.address, made.listener.address):
            with pytest.raises(Unreachable):
                made.network.connect(address)
