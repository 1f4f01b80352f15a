"""What a data set offers to training: batches of this rank's samples of the stream, and parts of the test set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from nnabla_torus.data.stream import SampleStream


class Batch(NamedTuple):
    """Some samples: `images`, float32 of (n, *image_shape), and `labels`, int32 of (n,); n may be 0."""

    images: np.ndarray
    labels: np.ndarray


class TrainReader(Protocol):
    """Reads one rank's samples of a stream in order.

    What comes next does not depend on how far each read goes, so a reader may work ahead in pieces of its own size.
    """

    def read(self, stop: int) -> Batch:
        """Return this rank's samples from where the last read stopped up to the stream's position `stop`.

        Their arrays may be used again by the next read.
        """

    def close(self) -> None:
        """Stop reading ahead, and give back what the reader holds."""


class DataSource(Protocol):
    """A data set, split into training and test samples."""

    classes: int
    train_samples: int
    test_samples: int

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image, as training takes it."""

    def train(self, stream: SampleStream, start: int) -> TrainReader:
        """Return a reader of this rank's training samples from the stream's position `start` on."""

    def test(self, start: int, stop: int, batch: int) -> Iterator[Batch]:
        """Return the test samples [start, stop) in order, at most `batch` at a time; their arrays may be used again."""

    def close(self) -> None:
        """Give back what the source holds."""
