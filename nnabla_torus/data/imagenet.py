"""ImageNet, or any set of image files in its layout: from files on disk to this rank's batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from nnabla_torus.data.augmentation import Augmentation
from nnabla_torus.data.dali import Decoding
from nnabla_torus.data.decoding import Decoder, Piece
from nnabla_torus.data.index import Index
from nnabla_torus.data.source import Batch
from nnabla_torus.data.stream import SampleStream
from nnabla_torus.failure import UserError


class ImageNet:
    """A training and a test set of image files, decoded as `decoding` says; images of `image_shape`, normalised.

    `replaced` counts, by path, the bad files of this rank for which another was taken. Raises UserError where the two
    sets have other classes.
    """

    def __init__(self, train: Index, test: Index, augmentation: Augmentation, decoding: Decoding) -> None:
        check_classes(train, test)
        self.image_shape = decoding.image_shape
        self.classes = len(train.classes)
        self.train_samples = len(train)
        self.test_samples = len(test)
        self.replaced: Counter[str] = Counter()
        self._train_index = train
        self._test_index = test
        self._augmentation = augmentation
        self._decoding = decoding

    def train(self, stream: SampleStream, start: int) -> ImageNetReader:
        """Return a reader of this rank's training samples from the stream's position `start` on."""
        pieces = train_pieces(stream, start, self._decoding.piece)
        decoder = Decoder(
            self._train_index, self._decoding, pieces, self._augmentation, stream.seed, replaced=self.replaced
        )
        return ImageNetReader(stream, start, Regrouped(decoder, self._decoding))

    def test(self, start: int, stop: int, batch: int) -> Iterator[Batch]:
        """Return the test samples [start, stop) in order, in batches of at most `batch`."""
        pieces = test_pieces(start, stop, self._decoding.piece)
        regrouped = Regrouped(Decoder(self._test_index, self._decoding, pieces, replaced=self.replaced), self._decoding)
        try:
            for first in range(start, stop, batch):
                yield regrouped.take(min(batch, stop - first))
        finally:
            regrouped.close()

    def close(self) -> None:
        """Do nothing: what decodes belongs to the readers."""


class ImageNetReader:
    """Reads one rank's samples; pieces of a fixed size are decoded ahead, whatever the batch size will be."""

    def __init__(self, stream: SampleStream, start: int, samples: Regrouped) -> None:
        self._stream = stream
        self._position = start
        self._samples = samples

    def read(self, stop: int) -> Batch:
        """Return this rank's samples from where the last read stopped up to the stream's position `stop`."""
        count = self._stream.count(self._position, stop)
        self._position = stop
        return self._samples.take(count)

    def close(self) -> None:
        """End DALI's threads."""
        self._samples.close()


class Regrouped:
    """Cuts what a decoder gives, piece by piece, into batches of any size."""

    def __init__(self, decoder: Decoder, decoding: Decoding) -> None:
        self._decoder = decoder
        self._decoding = decoding
        self._rest = self._batch = self._empty(0)

    def take(self, count: int) -> Batch:
        """Return the next `count` samples; the arrays are used again for those after them."""
        if count and not len(self._rest.labels):
            self._rest = Batch(*next(self._decoder))
        if count <= len(self._rest.labels):  # a batch within one piece need not be copied
            batch = Batch(*(array[:count] for array in self._rest))
            self._rest = Batch(*(array[count:] for array in self._rest))
            return batch
        if len(self._batch.labels) < count:
            self._batch = self._empty(count)  # kept: memory that is new each time costs as much as filling it
        images, labels = (array[:count] for array in self._batch)
        filled = 0
        while filled < count:
            if not len(self._rest.labels):
                self._rest = Batch(*next(self._decoder))
            part = min(count - filled, len(self._rest.labels))
            images[filled : filled + part] = self._rest.images[:part]
            labels[filled : filled + part] = self._rest.labels[:part]
            self._rest = Batch(*(array[part:] for array in self._rest))
            filled += part
        return Batch(images, labels)

    def close(self) -> None:
        """End the decoder."""
        self._rest = self._empty(0)  # no view into memory that goes
        self._decoder.close()

    def _empty(self, count: int) -> Batch:
        images = np.empty((count, *self._decoding.image_shape), self._decoding.array_type)
        return Batch(images, np.empty(count, np.int32))


def train_pieces(stream: SampleStream, start: int, size: int) -> Iterator[Piece]:
    """Return this rank's samples from the stream's position `start` on, `size` at a time, without end."""
    while True:
        stop = start + size * stream.size
        epochs, indices = stream.take(start, stop)
        yield Piece(indices, epochs, indices)
        start = stop


def test_pieces(start: int, stop: int, size: int) -> Iterator[Piece]:
    """Return the samples [start, stop) in order, at most `size` at a time."""
    for first in range(start, stop, size):
        samples = np.arange(first, min(first + size, stop))
        yield Piece(samples, np.zeros_like(samples), samples)


def check_classes(train: Index, test: Index) -> None:
    """Raise UserError where a test set is labelled otherwise than the training set."""
    counts = f"{train.root} has {len(train.classes)} training classes and {test.root} {len(test.classes)} test classes"
    if train.numbered or test.numbered:  # shards without names: a class that has no test image may be missing
        if len(test.classes) > len(train.classes):
            raise UserError(f"{counts}; the test set must have no other classes")
        return
    only = sorted(set(train.classes) ^ set(test.classes))
    if only:
        where = "training" if only[0] in train.classes else "test"
        raise UserError(f"{counts}; both must have the same, but {only[0]} is in the {where} set only")
    if train.classes != test.classes:
        raise UserError(f"{counts}, the same in another order; list them in the same order in both classes.txt")
