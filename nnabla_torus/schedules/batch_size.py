"""Batch sizes that grow in steps, fixed before the run: batch-size control of Mikami et al. 2018.

global batch          |----- 256 -----
           |-- 128 ---|
  -- 64 ---|
  0        e1         e2           samples seen
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence

# The global batch of the next step, given the samples seen before it.
BatchSchedule = Callable[[int], int]


def ladder(first: int, edges: Sequence[float], batches: Sequence[int]) -> BatchSchedule:
    """Take batches of `first` samples, then of batches[i] from edges[i] samples on; edges ascend."""
    return lambda seen: [first, *batches][bisect.bisect_right(edges, seen)]


def steps(batch_size: BatchSchedule, total: int) -> Iterator[tuple[int, int]]:
    """Yield each step's (start, stop) in the stream of `total` samples; the last step takes what is left."""
    start = 0
    while start < total:
        stop = min(start + batch_size(start), total)
        yield start, stop
        start = stop
