"""The order of training samples, which belongs to the job and not to its ranks.

    epoch       |------- 0 -------|------- 1 -------|--- 2 ...
    position    0 1 2 3 4 5 6 7 8 9 ...                          each epoch a permutation of all samples
    batches     |--- 6 ---|--- 6 ---|------ 8 ------| ...        any size, may straddle epochs, nothing dropped
    rank of 3   0 1 2 0 1 2 0 1 2 0 ...                          position modulo ranks

A batch is the next so many positions, and of them a rank takes those that are its own number modulo the ranks. So the
parts of a batch differ by at most one sample over ranks, and what a rank reads next does not depend on the batch size:
whatever it has read ahead stays right when the batch size changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Samples(NamedTuple):
    """Some samples in order: the epoch that each is drawn in, and its index in the data set, both int64 of (n,)."""

    epochs: np.ndarray
    indices: np.ndarray


class SampleStream:
    """The permutations of `samples` samples, one per epoch, joined end to end, as seen by one rank of `size`.

    Epoch e's permutation follows from (seed, e) alone, on every machine and for every numpy: it sorts the raw bits of a
    counter-based generator, whose stream numpy guarantees.
    """

    def __init__(self, samples: int, seed: int, rank: int = 0, size: int = 1) -> None:
        self.samples = samples
        self.seed = seed
        self.rank = rank
        self.size = size
        self._orders: dict[int, np.ndarray] = {}

    def order(self, epoch: int) -> np.ndarray:
        """Return one epoch's permutation, int64 of (samples,); the two that were used last are kept."""
        if epoch not in self._orders:
            bits = np.random.Philox(key=[self.seed, epoch]).random_raw(self.samples)
            while len(self._orders) >= 2:
                del self._orders[min(self._orders)]
            self._orders[epoch] = np.argsort(bits, kind="stable")
        return self._orders[epoch]

    def first(self, start: int) -> int:
        """Return this rank's first position at or after `start`."""
        return start + (self.rank - start) % self.size

    def count(self, start: int, stop: int) -> int:
        """Return how many of the positions [start, stop) are this rank's."""
        return len(range(self.first(start), stop, self.size))

    def take(self, start: int, stop: int) -> Samples:
        """Return this rank's samples among the positions [start, stop)."""
        positions = np.arange(self.first(start), stop, self.size)
        epochs, offsets = np.divmod(positions, self.samples)
        indices = np.empty_like(positions)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            indices[here] = self.order(int(epoch))[offsets[here]]
        return Samples(epochs, indices)
