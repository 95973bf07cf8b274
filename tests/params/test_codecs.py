"""Codecs: as many bytes as they promise, and what they send and what they hold back add up to the gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.params.codecs import CODECS, Codec, CodecError, Encoder, codec_of, one_bit, top_k
from tests.effort import cases

EXPRESSIONS = ("fp16", "bf16", "one_bit", "top_k", "top_k(share=0.3)", "top_k(share=0.1, momentum=0.9)")
FEEDBACK = ("one_bit", "top_k", "top_k(share=0.3)", "top_k(share=1)")  # what they sent and hold back adds up
DTYPES = (torch.float32, torch.float64)
SIZES = st.integers(1, 3 * one_bit.BLOCK)


class Ends:
    """Both ends of the way of one slice."""

    def __init__(self, expression: str, size: int, dtype: torch.dtype = torch.float32) -> None:
        self.codec = codec(expression)
        self.encoder: Encoder = self.codec.encoder(size, dtype)
        self.encoded = torch.full((self.codec.nbytes(size, dtype.itemsize),), 0xAA, dtype=torch.uint8)
        self._row = torch.full((size,), torch.nan, dtype=dtype)

    def send(self, gradient: torch.Tensor) -> torch.Tensor:
        before = gradient.clone()
        self.encoder.encode(gradient, self.encoded)
        assert torch.equal(gradient.nan_to_num(7.0), before.nan_to_num(7.0)), "a gradient is only read"
        self.codec.decode(self.encoded, self._row)
        return self._row.clone()

    @property
    def residual(self) -> torch.Tensor:
        return torch.from_numpy(self.encoder._residual.copy())  # type: ignore[attr-defined]


def codec(expression: str) -> Codec:
    found = codec_of(expression)
    assert found is not None
    return found


def numbers(seed: int, size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** torch.randint(-4, 3, (size,), generator=generator)
    return (torch.randn(size, generator=generator) * scale).to(dtype)


# As text.


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_codec_as_text_is_the_codec(expression: str) -> None:
    assert codec_of(str(codec(expression))) == codec(expression)
    assert codec_of(f"  {expression} ") == codec(expression)


def test_parameters_by_place_or_by_name() -> None:
    assert codec_of("top_k(0.5, 0.9)") == top_k.TopK(0.5, 0.9) == codec_of("top_k(momentum=0.9, share=0.5)")
    assert codec_of("none") is None is codec_of(" none() ")
    assert str(codec("top_k()")) == "top_k"


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("fp17", "no codec 'fp17', did you mean 'fp16'"),
        ("onebit", "did you mean 'one_bit'"),
        ("zip", "there are none, fp16, bf16, one_bit, top_k"),
        ("", "is not a codec"),
        ("fp16 bf16", "is not a codec"),
        ("fp16(1)", "cannot read the parameters"),
        ("top_k(", "is not a codec"),
        ("top_k(share=)", "cannot read the parameters"),
        ("top_k(1, 2, 3)", r"write top_k\(share=0.01, momentum=0.0\)"),
        ("top_k(shares=1)", "no parameter 'shares', did you mean 'share'"),
        ("top_k(**x)", "no parameter"),
        ("top_k(0.1, share=0.1)", "share is given twice"),
        ("top_k(share=__import__)", "is not a number"),
        ("top_k(share=True)", "is not a number"),
        ("top_k(share=0)", "above 0, up to 1"),
        ("top_k(share=1.5)", "above 0, up to 1"),
        ("top_k(share=-1)", "above 0, up to 1"),
        ("top_k(momentum=1)", "from 0, below 1"),
        ("top_k(share=1e999)", "is not allowed"),
        ("none(1)", "no codec 'none'"),
    ],
)
def test_text_that_is_no_codec(expression: str, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        codec_of(expression)


# What is promised.


@pytest.mark.parametrize(
    ("expression", "size", "itemsize", "nbytes"),
    [
        ("fp16", 1000, 4, 2000),
        ("bf16", 1000, 8, 2000),
        ("one_bit", 512, 4, 8 + 64),
        ("one_bit", 513, 4, 16 + 65),
        ("one_bit", 1, 8, 16 + 1),
        ("top_k(share=0.01)", 1000, 4, 10 * 6 + 4),
        ("top_k(share=0.01)", 1, 4, 6 + 4),
        ("top_k(share=0.01)", 65_537, 8, 655 * 10 + 8),
    ],
)
def test_how_many_bytes_there_are(expression: str, size: int, itemsize: int, nbytes: int) -> None:
    assert codec(expression).nbytes(size, itemsize) == nbytes


@pytest.mark.parametrize(
    ("expression", "times"), [("fp16", 2), ("bf16", 2), ("one_bit", 28), ("top_k", 66), ("top_k(0.001)", 650)]
)
def test_how_many_times_smaller_a_gradient_is(expression: str, times: float) -> None:
    size = 1_000_000
    assert 4 * size / codec(expression).nbytes(size, 4) >= times


@pytest.mark.parametrize(("name", "least", "most"), [("fp16", 2**-25, 2**-11), ("bf16", 2**-134, 2**-8)])
@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 10_000), size=SIZES)
@settings(max_examples=cases(20), deadline=None)
def test_numbers_are_rounded(name: str, least: float, most: float, dtype: torch.dtype, seed: int, size: int) -> None:
    gradient = numbers(seed, size, dtype)
    arrived = Ends(name, size, dtype).send(gradient)
    assert ((arrived - gradient).abs() <= torch.clamp(most * gradient.abs(), min=least)).all()


@pytest.mark.parametrize(("name", "most"), [("fp16", 65504.0), ("bf16", torch.finfo(torch.bfloat16).max)])
def test_what_is_finite_stays_finite(name: str, most: float) -> None:
    largest = torch.finfo(torch.float32).max
    arrived = Ends(name, 5).send(torch.tensor([largest, -largest, 1.0, most, -most]))
    assert arrived.tolist() == [most, -most, 1.0, most, -most]


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 10_000), size=SIZES)
@settings(max_examples=cases(20), deadline=None)
def test_one_bit_sends_the_signs_and_the_means_of_blocks(dtype: torch.dtype, seed: int, size: int) -> None:
    gradient = numbers(seed, size, dtype)
    arrived = Ends("one_bit", size, dtype).send(gradient)
    for start in range(0, size, one_bit.BLOCK):
        block, got = gradient[start : start + one_bit.BLOCK], arrived[start : start + one_bit.BLOCK]
        for those in (block >= 0, block < 0):
            if those.any():
                mean = block[those].double().mean()
                torch.testing.assert_close(
                    got[those].double(), mean.expand(int(those.sum())), rtol=1e-4, atol=1e-5 * float(block.abs().max())
                )


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 10_000), size=SIZES, share=st.floats(0.001, 1))
@settings(max_examples=cases(20), deadline=None)
def test_top_k_sends_the_largest_as_they_are(dtype: torch.dtype, seed: int, size: int, share: float) -> None:
    gradient = numbers(seed, size, dtype)
    arrived = Ends(f"top_k(share={share})", size, dtype).send(gradient)
    count = max(1, round(share * size))
    chosen = arrived != 0
    assert int(chosen.sum()) == count
    assert torch.equal(arrived[chosen], gradient[chosen])
    if count < size:
        assert gradient[~chosen].abs().max() <= gradient[chosen].abs().min()


def test_the_largest_of_many_are_found_whatever_a_sample_says() -> None:
    """More than a block of them, and places where looking at every so-manieth number misleads."""
    size = 3 * top_k.SAMPLE + 17
    for count in (1, 1000, size - 1, size):
        for seed in range(3):
            sizes = numbers(seed, size).abs().numpy()
            if seed == 1:
                sizes[::3] *= 1e6
            if seed == 2:
                sizes[:] = 1.0
            places = top_k.largest(sizes, count)
            assert places.size == count
            assert (np.diff(places) > 0).all()
            assert np.array_equal(np.sort(sizes[places]), np.sort(sizes)[size - count :])


# Error feedback.


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", FEEDBACK)
@given(seed=st.integers(0, 10_000), size=SIZES, steps=st.integers(1, 12))
@settings(max_examples=cases(15), deadline=None)
def test_what_was_sent_and_what_is_held_back_add_up_to_the_gradients(
    expression: str, dtype: torch.dtype, seed: int, size: int, steps: int
) -> None:
    ends = Ends(expression, size, dtype)
    gradients = [numbers(seed + n, size, dtype) for n in range(steps)]
    arrived = sum((ends.send(gradient).double() for gradient in gradients), torch.zeros(size).double())
    total = sum((gradient.double() for gradient in gradients), torch.zeros(size).double())
    rounding = 10 * steps**2 * torch.finfo(dtype).eps * max(float(gradient.abs().max()) for gradient in gradients)
    assert (arrived + ends.residual.double() - total).abs().max() <= rounding
    assert ends.encoder.held_back() == pytest.approx(float(ends.residual.double().norm()), rel=1e-4)


def dgc(gradients: list[torch.Tensor], momentum: float, count: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Lin et al., algorithm 1 with momentum correction and momentum factor masking, by the letter, on one node."""
    u = torch.zeros_like(gradients[0])
    v = torch.zeros_like(gradients[0])
    sent = []
    for gradient in gradients:
        u = momentum * u + gradient
        v = v + u
        threshold = v.abs().sort(descending=True).values[count - 1]
        mask = v.abs() >= threshold
        sent.append(v * mask)
        v = v * ~mask
        u = u * ~mask
    return sent, v


@given(seed=st.integers(0, 10_000), size=SIZES, momentum=st.sampled_from([0.0, 0.5, 0.9]))
@settings(max_examples=cases(30), deadline=None)
def test_top_k_is_deep_gradient_compression(seed: int, size: int, momentum: float) -> None:
    ends = Ends(f"top_k(share=0.1, momentum={momentum})", size)
    gradients = [numbers(seed + n, size) for n in range(8)]
    expected, held_back = dgc(gradients, momentum, max(1, round(0.1 * size)))
    for gradient, sent in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ends.send(gradient), sent, rtol=1e-6, atol=0)
    torch.testing.assert_close(ends.residual, held_back, rtol=1e-6, atol=0)


@pytest.mark.parametrize("expression", ["one_bit", "top_k(share=0.1)", "top_k(share=0.1, momentum=0.9)"])
@given(seed=st.integers(0, 10_000), size=SIZES)
@settings(max_examples=cases(15), deadline=None)
def test_what_is_taken_back_is_as_if_it_had_not_been_sent(expression: str, seed: int, size: int) -> None:
    ends = Ends(expression, size)
    ends.send(numbers(seed, size))
    ends.encoder.take_back()
    torch.testing.assert_close(ends.residual, numbers(seed, size), rtol=1e-5, atol=1e-4)
    ends.encoder.take_back()
    torch.testing.assert_close(ends.residual, numbers(seed, size), rtol=1e-5, atol=1e-4)
    if "momentum" in expression:
        velocity = ends.encoder._velocity  # type: ignore[attr-defined]
        assert torch.equal(torch.from_numpy(velocity), numbers(seed, size))


# What is not finite.


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_gradient_that_is_not_finite_arrives_so_and_leaves_nothing_behind(expression: str, value: float) -> None:
    size, place = 1500, 1234
    ends, beside = Ends(expression, size), Ends(expression, size)
    for each in (ends, beside):
        each.send(numbers(1, size))
    bad = numbers(2, size)
    bad[place] = value
    assert not ends.send(bad).isfinite().all()
    ends.encoder.take_back()
    for seed in range(3, 6):
        assert torch.equal(ends.send(numbers(seed, size)), beside.send(numbers(seed, size)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("expression", ["one_bit", "top_k(share=0.01)", "top_k(share=0.01, momentum=0.9)"])
def test_sums_that_overflow_are_let_go(expression: str, dtype: torch.dtype) -> None:
    """Each gradient is finite, but not what is held back of several; in time it is all right again."""
    ends = Ends(expression, 1000, dtype)
    largest = torch.full((1000,), torch.finfo(dtype).max, dtype=dtype) * torch.linspace(-1, 1, 1000, dtype=dtype)
    for _ in range(5):
        ends.send(largest)
        ends.encoder.take_back()
        assert ends.residual.isfinite().all()
    for _ in range(100):
        arrived = ends.send(torch.zeros(1000, dtype=dtype))
    assert arrived.isfinite().all()


# Hostile bytes.


def crafted(size: int, counts: list[int], low: list[int]) -> torch.Tensor:
    parts: list[Any] = [np.ones(len(low), np.float32), np.array(counts, np.uint32), np.array(low, np.uint16)]
    return torch.tensor(np.frombuffer(b"".join(part.tobytes() for part in parts), np.uint8).copy())


@pytest.mark.parametrize(
    ("counts", "low"),
    [
        ([3, 0], [5, 5, 6]),  # one twice
        ([3, 0], [7, 6, 5]),  # not in order
        ([2, 1], [1, 2, 100]),  # beyond the end
        ([1, 1], [1, 2, 3]),  # fewer than there are
        ([4, 0], [1, 2, 3]),  # more
        ([0xFFFFFFFF, 4], [1, 2, 3]),  # far more
        ([0, 0], [1, 2, 3]),
    ],
)
def test_places_that_cannot_be_are_refused(counts: list[int], low: list[int]) -> None:
    size = top_k.BLOCK + 100
    with pytest.raises(CodecError, match="top_k"):
        codec(f"top_k(share={3 / size})").decode(crafted(size, counts, low), torch.zeros(size))


def test_places_that_can_be() -> None:
    size = top_k.BLOCK + 100
    row = torch.full((size,), 9.0)
    codec(f"top_k(share={3 / size})").decode(crafted(size, [2, 1], [0, 65_535, 99]), row)
    assert row.nonzero().flatten().tolist() == [0, 65_535, size - 1]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, "top_k(share=1)"])
@given(data=st.data(), size=SIZES)
@settings(max_examples=cases(30), deadline=None)
def test_any_bytes_decode_or_are_refused(expression: str, data: st.DataObject, size: int) -> None:
    nbytes = codec(expression).nbytes(size, 4)
    seed = data.draw(st.integers(0, 2**32 - 1))
    encoded = torch.randint(0, 256, (nbytes,), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    try:
        codec(expression).decode(encoded, torch.zeros(size))
    except CodecError:
        assert "top_k" in expression


def test_every_codec_is_in_these_tests() -> None:
    assert {codec(expression).name for expression in EXPRESSIONS} == set(CODECS)
