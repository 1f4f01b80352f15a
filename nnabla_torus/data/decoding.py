"""Decodes pieces of a data set in order, and names the file that cannot be decoded, or replaces it.

DALI pulls: it asks for the next piece, a fixed number of samples, as soon as it has room to work ahead.

    pieces of samples -> [paths or encoded bytes, arguments] -> DALI's threads -> one array per piece, in order

A decoder that meets a bad file ends its pipeline and says neither which file nor which piece. So the pieces in flight
are kept; after a failure their samples are decoded one by one, the culprits named or replaced, and all are fed again.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from nnabla_torus.data.augmentation import Augmentation, draw_arguments
from nnabla_torus.data.dali import Decoding, build_pipeline
from nnabla_torus.data.faults import find_fault
from nnabla_torus.data.index import Index
from nnabla_torus.data.shards import read_image
from nnabla_torus.failure import UserError


class Piece(NamedTuple):
    """Some samples: which file of the index each comes from, and whose chance it draws (epoch, sample); int64 (n,).

    A sample's file has its own number, unless it was replaced.
    """

    files: np.ndarray
    epochs: np.ndarray
    samples: np.ndarray


class Decoder:
    """Iterates over (images, labels) of pieces in their order.

    `images` is a view of DALI's memory, right until the next piece is asked for. `augmentation` None is evaluation:
    the shorter side resized, the centre cut. What was replaced is counted in `replaced`, by its path.
    """

    def __init__(
        self,
        index: Index,
        decoding: Decoding,
        pieces: Iterator[Piece],
        augmentation: Optional[Augmentation] = None,
        seed: int = 0,
        replaced: Optional[Counter[str]] = None,
    ) -> None:
        self._index = index
        self._decoding = decoding
        self._augmentation = augmentation
        self._seed = seed
        self._replaced = Counter() if replaced is None else replaced
        self._run = self._start(map(self._with_known_sizes, pieces), decoding)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self

    def __next__(self) -> tuple[np.ndarray, np.ndarray]:
        while True:
            try:
                piece, images = next(self._run)
                return images, self._index.labels[piece.files]
            except RuntimeError as error:
                self._recover(error)

    def close(self) -> None:
        """End DALI's threads."""
        self._run.close()

    def _start(self, pieces: Iterator[Piece], decoding: Decoding) -> _Run:
        return _Run(pieces, self._feed, partial(build_pipeline, self._index.in_shards, decoding, self._augmentation))

    def _feed(self, piece: Piece) -> list[Any]:
        """Return what the pipeline's external source gives for a piece."""
        source = self._bytes if self._index.in_shards else self._index.path
        encoded = [np.frombuffer(source(file), np.uint8) for file in piece.files]
        if self._augmentation is None:
            return [encoded]
        extents = np.stack([self._index.heights[piece.files], self._index.widths[piece.files]], axis=1).astype(np.int64)
        chance = self._seed, piece.epochs, piece.samples
        drawn = draw_arguments(self._augmentation, self._decoding.size, *chance, extents)
        return [encoded, *(getattr(drawn, name) for name in self._augmentation.needs)]

    def _bytes(self, file: int) -> bytes:
        try:
            return read_image(self._index, file)
        except OSError:
            return b"\0"  # DALI then fails as it does for a file that it cannot read

    def _with_known_sizes(self, piece: Piece) -> Piece:
        """Return the piece without files whose size the index could not find out: they cannot be decoded."""
        files = piece.files.copy()
        for row in np.flatnonzero(self._index.heights[files] == 0):
            files[row] = self._substitute(files[row])
        return piece._replace(files=files)

    def _recover(self, error: RuntimeError) -> None:
        in_flight, waiting = self._run.take_back()
        mended = [self._mend(piece) for piece in in_flight]
        if all(before is after for before, after in zip(in_flight, mended)):
            raise error  # every sample decodes by itself: it was something else
        self._run = self._start(chain(mended, waiting), self._decoding)

    def _mend(self, piece: Piece) -> Piece:
        """Return the piece with every file that cannot be decoded replaced; itself where all can."""
        alone = replace(self._decoding, piece=1, prefetch=1)
        files = piece.files.copy()
        row, failures = 0, 0
        while row < len(files):
            one_by_one = (Piece(files[at], piece.epochs[at], piece.samples[at]) for at in _rows(row, len(files)))
            run = self._start(one_by_one, alone)
            try:
                for _ in run:
                    row, failures = row + 1, 0
            except RuntimeError:
                files[row] = self._substitute(files[row])
                failures += 1
                if failures == len(self._index):
                    raise self._nothing_decodes() from None
            finally:
                run.close()
        return piece if np.array_equal(files, piece.files) else piece._replace(files=files)

    def _substitute(self, file: int) -> int:
        """Return the file that stands in for a bad one, the next of known size; raises UserError where none may."""
        for bad in range(file, file + len(self._index)):
            self._count(bad % len(self._index))
            following = (bad + 1) % len(self._index)
            if self._index.heights[following] and following != file:
                return following
        raise self._nothing_decodes()

    def _count(self, file: int) -> None:
        path = self._index.describe(file)
        if self._decoding.on_error == "stop":
            raise UserError(
                f"{path} cannot be decoded: {self._reason(file)}; mend or remove it (nnabla-torus prepare verify finds "
                "all such files), or set data.on_error=replace"
            )
        self._replaced[path] += 1

    def _nothing_decodes(self) -> UserError:
        return UserError(f"none of the {len(self._index)} images of {self._index.root} can be decoded")

    def _reason(self, file: int) -> str:
        try:
            content = read_image(self._index, file)
        except OSError as error:
            return error.strerror or str(error)
        return find_fault(content, os.fsdecode(self._index.name(file))) or "not the file that was indexed"


def _rows(start: int, stop: int) -> Iterator[slice]:
    return (slice(at, at + 1) for at in range(start, stop))


Feed = Callable[[Piece], "list[Any]"]


class _Run:
    """One pipeline at work on an iterator of pieces, which knows what it has in flight."""

    def __init__(self, pieces: Iterator[Piece], feed: Feed, build: Callable[[Callable[[], list[Any]]], Any]) -> None:
        self._pieces = pieces
        self._feed = feed
        self._in_flight: deque[Piece] = deque()
        self._pipeline = build(self._next_feed)

    def __iter__(self) -> Iterator[tuple[Piece, np.ndarray]]:
        return self

    def __next__(self) -> tuple[Piece, np.ndarray]:
        self._pipeline.release_outputs()
        self._pipeline.schedule_run()
        (images,) = self._pipeline.share_outputs()
        return self._in_flight.popleft(), np.asarray(images.as_cpu().as_tensor())  # a view where it lies on the CPU

    def take_back(self) -> tuple[list[Piece], Iterator[Piece]]:
        """End the pipeline; return the pieces that it did not finish and those that it has not seen."""
        self.close()
        return list(self._in_flight), self._pieces

    def close(self) -> None:
        """End DALI's threads."""
        self._pipeline = None

    def _next_feed(self) -> list[Any]:
        piece = next(self._pieces)
        self._in_flight.append(piece)
        return self._feed(piece)
