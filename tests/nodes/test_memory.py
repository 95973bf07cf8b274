"""Tensors over shared memory."""

from __future__ import annotations

import gc
import os

import pytest
import torch

from paceline.nodes.memory import MOST, Tensors, tensor_over
from paceline.wire import Segment

BYTES = 1 << 16


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_written_to_a_segment_is_read_by_those_who_attach_it(dtype: torch.dtype) -> None:
    mine = Segment(BYTES)
    theirs = Segment.attached(os.dup(mine.fd), BYTES, "a peer")
    written, read = tensor_over(mine.view, dtype), tensor_over(theirs.view, dtype)
    written.copy_(torch.arange(BYTES // dtype.itemsize))
    assert torch.equal(read, torch.arange(BYTES // dtype.itemsize, dtype=dtype))
    assert written.data_ptr() != read.data_ptr()
    mine.close()
    theirs.close()


def test_a_tensor_outlives_the_segment_that_it_lies_in() -> None:
    mine = Segment(BYTES)
    theirs = Segment.attached(os.dup(mine.fd), BYTES, "a peer")
    written, read = tensor_over(mine.view[4:], torch.float32), tensor_over(theirs.view[4:], torch.float32)
    mine.close()
    theirs.close()
    del mine, theirs
    gc.collect()
    written.fill_(3.0)
    assert read.sum() == 3.0 * (BYTES // 4 - 1)


def test_a_view_that_comes_again_has_the_same_tensor() -> None:
    mine, tensors = Segment(BYTES), Tensors(torch.float32)
    tensor = tensors.over(mine.part(0, 400))
    assert tensor is tensors.over(mine.part(0, 400))
    assert tensors.over(mine.part(400, 800)).data_ptr() == tensor.data_ptr() + 400


def test_only_few_tensors_are_remembered() -> None:
    tensors = Tensors(torch.float32)
    views = [memoryview(bytearray(4 * size)) for size in range(1, 3 * MOST)]
    assert [len(tensors.over(view)) for view in views] == list(range(1, 3 * MOST))
    assert len(tensors._made) <= MOST
