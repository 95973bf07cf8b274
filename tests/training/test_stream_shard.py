"""One worker's part of a stream: every so many batches of it."""

from __future__ import annotations

from torch.utils.data import DataLoader

from paceline.training.sharding import shard
from tests.training.loaders import Measured, Stream, everyone


def test_a_stream_is_shared_by_batches() -> None:
    workers = everyone(DataLoader(Stream(14), batch_size=2), 3)
    for _ in range(2):
        assert [[batch.tolist() for batch in worker] for worker in workers] == [
            [[0, 1], [6, 7], [12, 13]],
            [[2, 3], [8, 9]],
            [[4, 5], [10, 11]],
        ]


def test_a_stream_with_loader_workers_is_shared_by_batches() -> None:
    workers = everyone(DataLoader(Stream(24), batch_size=2, num_workers=2), 2)
    parts = [[number for batch in worker for number in batch.tolist()] for worker in workers]
    assert sorted(parts[0] + parts[1]) == list(range(24))
    assert len(parts[0]) == len(parts[1])


def test_a_stream_with_a_length_and_one_worker_alone() -> None:
    for worker in everyone(DataLoader(Measured(14), batch_size=2), 3):
        assert len(list(worker)) == len(worker)
    alone = shard(DataLoader(Measured(5), batch_size=2, drop_last=True), rank=0, world_size=1)
    assert [batch.tolist() for batch in alone] == [[0, 1], [2, 3]]
    assert len(alone) == 2


def test_a_stream_hears_of_the_epoch() -> None:
    stream = Stream(4)
    shard(DataLoader(stream), rank=0, world_size=2).set_epoch(7)
    assert stream.epoch == 7
