"""The index of one split: where each image lies, its class and its size, in arrays that all ranks of a host share.

A class folder and a tar shard are both a *container* of images. Images are ordered by container and name, so an
image's container follows from its number, and a file costs

    label 4 B + height 2 B + width 2 B + end of its name 8 B + its name (20 B in ImageNet); in tar + 16 B

The arrays are memory-mapped: the page cache holds one copy for all ranks of a host.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Optional

import numpy as np

VERSION = 1
SMALL = 4096  # bytes of a file that is read rather than mapped
COLUMNS = ("labels", "heights", "widths", "name_ends", "names", "offsets", "lengths")


@dataclass(frozen=True)
class Index:
    """What is known of a split's n images in c containers; open one with `load`.

    `labels` int32 (n), `heights` and `widths` uint16 (n, 0 where the header could not be read), `names` the bytes of
    all names joined, `name_ends` int64 (n), `container_ends` int64 (c), `offsets` and `lengths` int64 (n, empty unless
    the containers are tar shards), `notes` what was passed over or looks odd, one line each.
    """

    root: str
    containers: list[str]
    container_ends: np.ndarray
    classes: list[str]
    labels: np.ndarray
    heights: np.ndarray
    widths: np.ndarray
    name_ends: np.ndarray
    names: np.ndarray
    offsets: np.ndarray
    lengths: np.ndarray
    notes: list[str]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def in_shards(self) -> bool:
        """Whether the containers are tar shards."""
        return len(self.offsets) > 0

    @property
    def numbered(self) -> bool:
        """Whether the classes have numbers for names, as in tar shards that come without names."""
        return self.classes == [str(number) for number in range(len(self.classes))]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, those per image and those per container."""
        return self.container_ends.nbytes + sum(getattr(self, column).nbytes for column in COLUMNS)

    def name(self, image: int) -> bytes:
        """Return the name of an image within its container, as the file system's bytes."""
        start = self.name_ends[image - 1] if image else 0
        return self.names[start : self.name_ends[image]].tobytes()

    def container(self, image: int) -> str:
        """Return the path of the folder or tar shard that holds an image, below the root."""
        return self.containers[int(np.searchsorted(self.container_ends, image, side="right"))]

    def path(self, image: int) -> bytes:
        """Return the path of an image's file, or of its tar shard, as the file system's bytes."""
        container = os.path.join(os.fsencode(self.root), os.fsencode(self.container(image)))
        return container if self.in_shards else os.path.join(container, self.name(image))

    def describe(self, image: int) -> str:
        """Return an image's path for a person; SHARD.tar:NAME within a shard."""
        path = os.fsdecode(self.path(image))
        return f"{path}:{os.fsdecode(self.name(image))}" if self.in_shards else path

    def counts(self) -> np.ndarray:
        """Return the number of images of each class, int64 (classes)."""
        return np.bincount(self.labels, minlength=len(self.classes))


def save(index: Index, folder: Path) -> None:
    """Write an index to `folder`, whole or not at all; a folder of that name is replaced. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    unfinished.chmod(0o755)
    try:
        for column in (*COLUMNS, "container_ends"):
            np.save(unfinished / f"{column}.npy", getattr(index, column), allow_pickle=False)
        about = {
            "version": VERSION,
            "fingerprint": index.fingerprint,
            "containers": index.containers,
            "classes": index.classes,
            "notes": index.notes,
        }
        (unfinished / "index.json").write_text(json.dumps(about), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def load(folder: Path, root: str, fingerprint: str) -> Optional[Index]:
    """Open the index in `folder` if it belongs to this fingerprint, None otherwise. Arrays are mapped, not read."""
    try:
        about = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        if (about["version"], about["fingerprint"]) != (VERSION, fingerprint):
            return None
        arrays = {column: _map(folder / f"{column}.npy") for column in (*COLUMNS, "container_ends")}
    except (OSError, ValueError, KeyError):
        return None
    return Index(
        root=root,
        containers=about["containers"],
        classes=about["classes"],
        notes=about["notes"],
        fingerprint=fingerprint,
        **arrays,
    )


def _map(file: Path) -> np.ndarray:
    # An empty array cannot be mapped. Plain arrays over the mapping: slicing the memmap subclass costs far more.
    mode: Literal["r"] | None = "r" if file.stat().st_size > SMALL else None
    return np.asarray(np.load(file, mmap_mode=mode, allow_pickle=False))
