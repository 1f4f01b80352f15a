import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnabla_torus.data.stream import SampleStream


def everybodys(samples, seed, size, edges):
    """All ranks' indices put back in stream order: position p is the next one of rank p mod size."""
    ranks = [SampleStream(samples, seed, rank, size) for rank in range(size)]
    parts = [[iter(rank.take(start, stop).indices) for rank in ranks] for start, stop in zip(edges, edges[1:])]
    joined = []
    for (start, stop), part in zip(zip(edges, edges[1:]), parts):
        joined += [next(part[position % size]) for position in range(start, stop)]
        assert all(next(rest, None) is None for rest in part)
    return joined


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_sample_of_an_epoch_is_seen_once_whatever_the_batches_and_ranks(size):
    edges = [0, 4, 5, 12, 13, 25, 31, 33]  # 11 samples, 3 epochs, batches across their edges
    seen = everybodys(11, 5, size, edges)
    for epoch in range(3):
        assert sorted(seen[11 * epoch : 11 * (epoch + 1)]) == list(range(11))
    assert seen == everybodys(11, 5, 1, [0, 33])


def test_order_is_fixed_by_seed_and_epoch():
    # Written out once, so that a change of the order, which would break every resumed run, is noticed.
    assert SampleStream(8, seed=1).order(0).tolist() == [3, 5, 2, 7, 0, 6, 1, 4]
    assert SampleStream(8, seed=1).order(1).tolist() == [0, 6, 5, 3, 4, 7, 2, 1]
    assert SampleStream(8, seed=2).order(0).tolist() == [1, 4, 0, 6, 3, 5, 2, 7]


def test_epochs_come_with_their_samples():
    taken = SampleStream(5, seed=0, rank=1, size=2).take(2, 12)  # positions 3, 5, 7, 9, 11
    assert taken.epochs.tolist() == [0, 1, 1, 1, 2]
    orders = np.concatenate([SampleStream(5, seed=0).order(epoch) for epoch in range(3)])
    assert taken.indices.tolist() == orders[[3, 5, 7, 9, 11]].tolist()


@given(st.integers(1, 40), st.integers(0, 100), st.integers(0, 130), st.integers(1, 9))
def test_parts_of_a_batch_differ_by_at_most_one(samples, start, batch, size):
    streams = [SampleStream(samples, 3, rank, size) for rank in range(size)]
    counts = [stream.count(start, start + batch) for stream in streams]
    assert counts == [len(stream.take(start, start + batch).indices) for stream in streams]
    assert sum(counts) == batch and max(counts) - min(counts) <= 1


def test_what_a_rank_reads_next_does_not_depend_on_the_batches():
    stream = SampleStream(10, seed=4, rank=2, size=3)
    whole = stream.take(0, 40).indices.tolist()
    for edges in ([0, 1, 2, 3, 40], [0, 7, 14, 21, 28, 35, 40], [0, 39, 40]):
        pieces = [stream.take(start, stop).indices.tolist() for start, stop in zip(edges, edges[1:])]
        assert [index for piece in pieces for index in piece] == whole
