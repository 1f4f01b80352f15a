"""Reads every image of a split as training would, on all cores, and tells what is wrong with which file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, NamedTuple, Optional

from nnabla_torus.data.faults import STOPPING, UNREADABLE, find_fault
from nnabla_torus.data.index import Index
from nnabla_torus.data.shards import read_image

CHUNK = 64  # images a thread takes at a time

Progress = Callable[[Iterable[int], int], Iterable[int]]
"""Passes items on, of which there are so many."""


class Found(NamedTuple):
    """What is wrong with one image: its number in the index, its path for a person, and the fault."""

    image: int
    path: str
    fault: str

    @property
    def stops(self) -> bool:
        """Whether training would end, or replace the image."""
        return self.fault in STOPPING


def verify(index: Index, progress: Progress, threads: Optional[int] = None) -> list[Found]:
    """Decode every image and return the faults in the index's order; `progress` sees chunks of 64 images."""
    chunks = range(0, len(index), CHUNK)
    found: list[Found] = []
    pool = ThreadPoolExecutor(threads or os.cpu_count())  # Pillow decodes outside the interpreter's lock
    try:
        results = pool.map(lambda start: _check(index, start), chunks)
        for _, faults in zip(progress(chunks, len(chunks)), results):
            found += faults
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted check ends at once
    return found


def _check(index: Index, start: int) -> list[Found]:
    found = []
    for image in range(start, min(start + CHUNK, len(index))):
        try:
            fault = find_fault(read_image(index, image), os.fsdecode(index.name(image)))
        except OSError:
            fault = UNREADABLE
        if fault is not None:
            found.append(Found(image, index.describe(image), fault))
    return found
