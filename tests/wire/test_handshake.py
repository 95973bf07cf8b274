"""The handshake as a pure machine: who gets in, who does not, and what each is told."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.errors import HandshakeRefused, NetworkError
from paceline.wire.handshake import MAX_HELLO, NONCE, Accepted, Challenge, Handshake, Opening, Proof
from tests.effort import cases


def side(
    which: str, token: str | None = "secret", config: str = "abc", hello: bytes = b"", nonce: int = 0, protocol: int = 1
) -> Handshake:
    return Handshake(
        "connects" if which == "connects" else "accepts",
        token=token,
        config=config,
        hello=hello or which.encode(),
        nonce=bytes([nonce or len(which)]) * NONCE,
        protocol=protocol,
    )


def meet(connects: Handshake, accepts: Handshake) -> list[bytes]:
    """Carry messages to and fro. Returns all of them, raises what the first to refuse raises."""
    said: list[bytes] = []
    message, here, there = connects.start(), connects, accepts
    while message is not None:
        said.append(message)
        try:
            message = there.receive(message)
        except HandshakeRefused as error:
            refusal = there.refusal(error)
            if refusal is not None:
                with pytest.raises(HandshakeRefused) as told:
                    here.receive(refusal)
                assert told.value.told
                assert (told.value.code, told.value.why) == (error.code, error.why)
                assert here.refusal(told.value) is None
            raise
        here, there = there, here
    return said


@pytest.mark.parametrize("token", [None, "secret"])
def test_two_that_agree_learn_each_others_hello(token: str | None) -> None:
    one, other = side("connects", token), side("accepts", token)
    meet(one, other)
    assert (one.done, other.done) == (True, True)
    assert (one.hello, other.hello) == (b"accepts", b"connects")


@pytest.mark.parametrize(
    ("one", "other", "code", "why"),
    [
        (side("connects", protocol=3), side("accepts", protocol=2), "protocol", "protocol 3, here 2"),
        (side("connects", token="wrong"), side("accepts"), "token", "wrong or missing"),
        (side("connects", token=None), side("accepts"), "token", "wrong or missing"),
        (side("connects"), side("accepts", token=None), "token", "wrong or missing"),
        (side("connects", config="x"), side("accepts", config="y"), "configuration", "'x', here 'y'"),
    ],
)
def test_the_reason_of_a_refusal_is_told(one: Handshake, other: Handshake, code: str, why: str) -> None:
    with pytest.raises(HandshakeRefused, match=why) as refused:
        meet(one, other)
    assert refused.value.code == code
    assert not one.done
    assert not other.done


def test_a_stranger_is_told_neither_configuration_nor_hello() -> None:
    other = side("accepts", config="private", hello=b"private")
    one = side("connects", token="wrong", config="guess")
    said = b""
    for message in (one.start(),):
        assert message is not None
        said += other.receive(message) or b""
    proof = one.receive(said)
    assert proof is not None
    with pytest.raises(HandshakeRefused) as refused:
        other.receive(proof)
    said += other.refusal(refused.value) or b""
    assert b"private" not in said


def test_an_impostor_that_accepts_anyone_is_found_out() -> None:
    one, impostor = side("connects"), side("accepts", token="guess")
    opening = one.start()
    assert opening is not None
    challenge = impostor.receive(opening)
    assert challenge is not None
    proof = one.receive(challenge)
    assert proof is not None
    impostor._check_token = lambda proof, expected: None  # type: ignore[method-assign]
    accepted = impostor.receive(proof)
    assert accepted is not None
    with pytest.raises(HandshakeRefused) as refused:
        one.receive(accepted)
    assert refused.value.code == "token"
    assert not one.done


def test_a_proof_can_neither_be_used_again_nor_handed_back() -> None:
    said = meet(side("connects"), side("accepts"))
    again = side("accepts", nonce=99)
    again.receive(said[0])
    with pytest.raises(HandshakeRefused, match="token"):
        again.receive(said[2])
    before_mirror = side("connects")
    opening = before_mirror.start()
    assert opening is not None
    decoded = msgspec.msgpack.decode(opening, type=Opening)
    with pytest.raises(HandshakeRefused, match="its own"):
        before_mirror.receive(msgspec.msgpack.encode(Challenge(decoded.protocol, decoded.nonce)))
    proof = before_mirror.receive(msgspec.msgpack.encode(Challenge(decoded.protocol, bytes(NONCE))))
    assert proof is not None
    echo = msgspec.msgpack.decode(proof, type=Proof)
    with pytest.raises(HandshakeRefused, match="token"):
        before_mirror.receive(msgspec.msgpack.encode(Accepted(echo.proof, echo.hello)))


@given(step=st.integers(0, 3), place=st.integers(0, 1000), flip=st.integers(1, 255))
@settings(max_examples=cases(300), deadline=None)
def test_a_message_changed_on_its_way_never_opens_both_sides_with_another_content(
    step: int, place: int, flip: int
) -> None:
    one, other = side("connects"), side("accepts")
    message, here, there = one.start(), one, other
    for n in range(4):
        assert message is not None
        if n == step:
            changed = bytearray(message)
            changed[place % len(message)] ^= flip
            message = bytes(changed)
        try:
            message = there.receive(message)
        except HandshakeRefused:
            return
        here, there = there, here
    assert (one.hello, other.hello) == (b"accepts", b"connects")


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.sampled_from(["connects", "accepts"]))
@settings(max_examples=cases(200), deadline=None)
def test_rubbish_is_refused(messages: list[bytes], which: str) -> None:
    machine = side(which)
    for message in messages:
        with pytest.raises(HandshakeRefused):
            machine.receive(message)
    assert not machine.done


@pytest.mark.parametrize("inside", [b"\x91" * 8000, b"\xa4\xff\xff\xff\xff"])
def test_what_the_decoder_itself_stumbles_over_is_refused(inside: bytes) -> None:
    with pytest.raises(HandshakeRefused, match="no handshake"):
        side("accepts").receive(b"\x82\xa4type\xa7Opening\xa1x" + inside)
    with pytest.raises(HandshakeRefused, match="no handshake"):
        side("accepts").receive(inside)


def test_messages_out_of_their_order_are_refused() -> None:
    said = meet(side("connects"), side("accepts"))
    for which in ("connects", "accepts"):
        for n, message in enumerate(said):
            if (which, n) in (("accepts", 0), ("connects", 1)):
                continue
            with pytest.raises(HandshakeRefused):
                side(which).receive(message)
    finished = side("accepts")
    meet(side("connects"), finished)
    with pytest.raises(HandshakeRefused, match="over"):
        finished.receive(said[0])


def test_hellos_are_bounded_here_and_there() -> None:
    with pytest.raises(NetworkError, match="at most"):
        side("connects", hello=bytes(MAX_HELLO + 1))
    one, other = side("connects", hello=bytes(MAX_HELLO)), side("accepts", hello=bytes(MAX_HELLO))
    meet(one, other)
    assert len(one.hello) == len(other.hello) == MAX_HELLO
    liar, other = side("connects"), side("accepts")
    opening = liar.start()
    assert opening is not None
    challenge = other.receive(opening)
    assert challenge is not None
    liar.receive(challenge)
    much = bytes(MAX_HELLO + 1)
    with pytest.raises(HandshakeRefused, match="at most"):
        other.receive(msgspec.msgpack.encode(Proof(liar._proof("connects", "abc", much), "abc", much)))


def test_a_refusal_for_a_reason_that_is_not_known_counts_as_one() -> None:
    machine = side("connects")
    for code in ("a", "b", "c" * 100):
        with pytest.raises(HandshakeRefused) as refused:
            machine.receive(msgspec.msgpack.encode({"type": "Refused", "code": code, "why": "\x1b[2J" * 5000}))
        assert refused.value.cause == "refused: unknown"
        assert len(refused.value.why) == 1024
        assert refused.value.why.isprintable()
