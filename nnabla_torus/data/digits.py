"""The handwritten digits that scikit-learn brings along: 1,797 real images of 8 x 8 pixels, ten classes, no download.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository (1998).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nnabla_torus.data.source import Batch
from nnabla_torus.data.stream import SampleStream

TEST_SAMPLES = 360


class Digits:
    """The digits as float32 images of (1, 8, 8) between 0 and 1, split into 1,437 to train on and 360 to test on.

    The file holds one writer after the other, so the split is drawn: always the same, whatever the run's seed.
    """

    image_shape = (1, 8, 8)
    classes = 10

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        pixels, labels = load_digits(return_X_y=True)
        images = (pixels / 16).astype(np.float32).reshape(-1, *self.image_shape)
        order = SampleStream(len(images), seed=0).order(0)
        held_out, kept = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
        self.train_set = Batch(images[kept], labels[kept].astype(np.int32))
        self.test_set = Batch(images[held_out], labels[held_out].astype(np.int32))
        self.train_samples = len(kept)
        self.test_samples = len(held_out)

    def train(self, stream: SampleStream, start: int) -> DigitsReader:
        """Return a reader of this rank's training samples from the stream's position `start` on."""
        return DigitsReader(self.train_set, stream, start)

    def test(self, start: int, stop: int, batch: int) -> Iterator[Batch]:
        """Return the test samples [start, stop) in order, in batches of at most `batch`."""
        for first in range(start, stop, batch):
            rows = slice(first, min(first + batch, stop))
            yield Batch(self.test_set.images[rows], self.test_set.labels[rows])

    def close(self) -> None:
        """Do nothing: everything lies in memory."""


class DigitsReader:
    """Reads from memory, so there is nothing to read ahead."""

    def __init__(self, samples: Batch, stream: SampleStream, start: int) -> None:
        self._samples = samples
        self._stream = stream
        self._position = start

    def read(self, stop: int) -> Batch:
        """Return this rank's samples from where the last read stopped up to the stream's position `stop`."""
        indices = self._stream.take(self._position, stop).indices
        self._position = stop
        return Batch(self._samples.images[indices], self._samples.labels[indices])

    def close(self) -> None:
        """Do nothing: nothing is held."""
