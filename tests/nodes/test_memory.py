"""Tensors over shared memory."""

from __future__ import annotations

import gc
import os

import pytest
import torch

from paceline.nodes.memory import tensor_over
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
