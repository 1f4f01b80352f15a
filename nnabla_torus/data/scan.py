"""Finds a split's images on disk, once, and keeps what it found: class folders, a flat folder with labels, tar shards.

The index is kept in a folder beside the data, with a fingerprint: the time of the last change of every class folder (a
file that is added, renamed or removed changes it), size and time of every shard and label file. So 14 million files
are walked once, and 22 thousand folders looked at in each later start. A file overwritten in place is not noticed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

import numpy as np

from nnabla_torus.data import index as index_file
from nnabla_torus.data import shards
from nnabla_torus.data.image_header import image_size
from nnabla_torus.data.index import Index
from nnabla_torus.data.labels import check_numbers, read_labels
from nnabla_torus.failure import UserError

SUFFIXES = (b".jpeg", b".jpg", b".png")
CACHE = ".nnabla_torus"
THREADS = 16  # headers are read by waiting for the disk
CHUNK = 64  # files a thread takes at a time

Progress = Callable[[Iterable[str]], Iterable[str]]


@dataclass(frozen=True)
class Layout:
    """How a split lies on disk: its containers below the root, sorted, and what labels them."""

    root: Path
    form: str  # folders, flat or shards
    containers: list[str]
    classes: list[str]  # empty where only the labels in the shards tell
    labels: Optional[Path] = None
    passed_over: int = 0


def open_index(
    root: Path,
    split: str,
    labels: Optional[Path] = None,
    classes: Optional[list[str]] = None,
    cache: Optional[Path] = None,
    build: bool = True,
    progress: Progress = iter,
) -> Index:
    """Open the kept index of `root/split`, made now where none fits and `build` is set.

    `split` is a folder or, for shards, may be a pattern such as `train-*.tar`. `labels` and `classes` (of the training
    split) serve a flat folder. `cache` is where indexes are kept, `root/.nnabla_torus` unless given. Raises UserError.
    """
    layout = find_layout(root, split, labels, classes)
    fingerprint = _fingerprint(layout)
    folder = (cache or root / CACHE) / f"{split.replace('/', '_').replace('*', '_')}.index"
    found = index_file.load(folder, str(root), fingerprint)
    if found is not None:
        return found
    if not build:
        raise UserError(
            f"the index {folder} does not belong to {root / split} as this host sees it; the folder of the index must "
            "be on a disk that all hosts share, or made on each host by 'nnabla-torus prepare index'"
        )
    made = _scan(layout, fingerprint, progress)
    try:
        index_file.save(made, folder)
    except OSError as error:
        raise UserError(
            f"the index cannot be written to {folder}: {error.strerror}; name a folder that can be written for it"
        ) from None
    return made


def find_layout(root: Path, split: str, labels: Optional[Path] = None, classes: Optional[list[str]] = None) -> Layout:
    """Tell which of the three forms a split has and list its containers. Raises UserError."""
    if "*" in split:
        found = sorted(path for path in root.glob(split) if path.suffix == ".tar")
        if not found:
            raise UserError(f"no .tar shards match {root / split}; name a folder, or a pattern that matches shards")
        return _shards(root, [str(path.relative_to(root)) for path in found])
    folder = root / split
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}; it must hold class folders, images or .tar shards")
    with os.scandir(folder) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".")]
    folders = sorted((entry.name for entry in seen if entry.is_dir()), key=os.fsencode)
    tars = sorted((entry.name for entry in seen if entry.name.endswith(".tar")), key=os.fsencode)
    packed = [entry.name for entry in seen if entry.name.endswith((".tar.gz", ".tgz", ".tar.zst"))]
    images = sum(_is_image(os.fsencode(entry.name)) for entry in seen)
    if folders and not (labels and images):
        if labels is not None:
            raise UserError(f"{folder} holds class folders, so the labels {labels} are not needed; leave them out")
        containers = [os.path.join(split, name) for name in folders]
        return Layout(root, "folders", containers, folders, passed_over=len(seen) - len(folders))
    if tars:
        return _shards(root, [os.path.join(split, name) for name in tars])
    if packed:
        raise UserError(f"{folder / packed[0]} is compressed; shards are read by offset and must be plain .tar")
    if not images:
        raise UserError(f"{folder} holds no class folders, no .tar shards and no images")
    if labels is None:
        raise UserError(f"{folder} holds {images} images without class folders; give the file that labels them")
    if classes is None:
        raise UserError(f"{folder} holds images without class folders; only a validation split can be so")
    return Layout(root, "flat", [split], classes, labels, passed_over=len(seen) - images)


def _shards(root: Path, containers: list[str]) -> Layout:
    return Layout(root, "shards", containers, shards.read_classes((root / containers[0]).parent))


def _fingerprint(layout: Layout) -> str:
    digest = hashlib.sha256()
    watched = [layout.root / name for name in layout.containers]
    if layout.form == "shards":
        watched.append(watched[0].parent / shards.CLASSES)
    if layout.labels is not None:
        watched += [layout.labels, layout.labels.with_name("meta.mat")]
    for path in watched:
        try:
            stat = path.stat()
            state = (stat.st_mtime_ns, 0 if path.is_dir() else stat.st_size)
        except OSError:
            state = (0, -1)
        digest.update(os.fsencode(f"{path.name} {state}\n"))
    digest.update(os.fsencode("\n".join([layout.form, *layout.classes])))
    return digest.hexdigest()


def _is_image(name: bytes) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(b".")


class _Columns:
    """Collects the arrays of an index container by container."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.ends: list[np.ndarray] = []
        self.sizes: list[np.ndarray] = []
        self.places: list[np.ndarray] = []
        self.labels: list[np.ndarray] = []

    def add(self, names: list[bytes], sizes: list[tuple[int, int]], labels: np.ndarray, places: np.ndarray) -> None:
        self.names.append(b"".join(names))
        self.ends.append(np.fromiter(map(len, names), np.int64, len(names)))
        self.sizes.append(np.array(sizes, np.uint16).reshape(-1, 2))
        self.labels.append(labels)
        self.places.append(places.reshape(-1, 2))

    def index(self, layout: Layout, classes: list[str], notes: list[str], fingerprint: str) -> Index:
        sizes, places = np.concatenate(self.sizes), np.concatenate(self.places)
        return Index(
            root=str(layout.root),
            containers=layout.containers,
            container_ends=np.cumsum([len(part) for part in self.labels], dtype=np.int64),
            classes=classes,
            labels=np.concatenate(self.labels).astype(np.int32),
            heights=np.ascontiguousarray(sizes[:, 0]),
            widths=np.ascontiguousarray(sizes[:, 1]),
            name_ends=np.cumsum(np.concatenate(self.ends), dtype=np.int64),
            names=np.frombuffer(b"".join(self.names), np.uint8),
            offsets=np.ascontiguousarray(places[:, 0]),
            lengths=np.ascontiguousarray(places[:, 1]),
            notes=notes,
            fingerprint=fingerprint,
        )


def _scan(layout: Layout, fingerprint: str, progress: Progress) -> Index:
    columns = _Columns()
    notes = (
        [f"entries of {os.path.dirname(layout.containers[0]) or layout.root} that are no images: {layout.passed_over}"]
        if layout.passed_over
        else []
    )
    with ThreadPoolExecutor(THREADS) as pool:
        for number, container in enumerate(progress(layout.containers)):
            path = os.path.join(os.fsencode(layout.root), os.fsencode(container))
            if layout.form == "shards":
                members = shards.list_members(path)
                names = [member.name for member in members]
                labels = np.array([member.label for member in members], np.int64)
                places = np.array([(member.offset, member.length) for member in members], np.int64)
                sizes = _in_chunks(pool, lambda some, path=path: _shard_sizes(path, some), members)
            else:
                names, others = _list_folder(path)
                places = np.zeros((0, 2), np.int64)
                sizes = _in_chunks(pool, lambda some, path=path: _file_sizes(path, some), names)
                if layout.labels is None:
                    labels = np.full(len(names), number)
                else:
                    labels = read_labels(layout.labels, names, layout.classes)
                if others:
                    notes.append(f"entries of {container} that are no images: {others}")
                if not names:
                    notes.append(f"class {container} is empty")
            columns.add(names, sizes, labels, places)
    classes = layout.classes
    if layout.form == "shards":
        found = np.concatenate(columns.labels)
        classes = classes or _numbered_classes(found, layout)
        check_numbers(found, len(classes), f"the shards {layout.containers[0]} ...")
    made = columns.index(layout, classes, notes, fingerprint)
    if not len(made):
        raise UserError(f"{layout.root / layout.containers[0]} and its neighbours hold no images")
    unknown = int(np.count_nonzero(made.heights == 0))
    if unknown:
        notes.append(f"files without a readable image header: {unknown}; 'nnabla-torus prepare verify' names them")
    return made


def _numbered_classes(labels: np.ndarray, layout: Layout) -> list[str]:
    if len(labels) and labels.min() == 1:
        raise UserError(
            f"labels in the shards {layout.containers[0]} ... run from 1 to {labels.max()}; they must start at 0"
        )
    return [str(number) for number in range(int(labels.max(initial=-1)) + 1)]


def _list_folder(path: bytes) -> tuple[list[bytes], int]:
    """Return the sorted names of a folder's images, and the number of its other entries."""
    with os.scandir(path) as entries:
        found = [(entry.name, _is_image(entry.name) and entry.is_file()) for entry in entries]
    return sorted(name for name, image in found if image), sum(not image for _, image in found)


def _in_chunks(pool: ThreadPoolExecutor, sizes_of: Callable, items: list) -> list[tuple[int, int]]:
    chunks = (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))
    return list(itertools.chain.from_iterable(pool.map(sizes_of, chunks)))


def _file_sizes(folder: bytes, names: list[bytes]) -> list[tuple[int, int]]:
    return [_size_in(os.path.join(folder, name), 0, None) for name in names]


def _shard_sizes(path: bytes, members: list[shards.Member]) -> list[tuple[int, int]]:
    return [_size_in(path, member.offset, member.length) for member in members]


def _size_in(path: bytes, offset: int, length: Optional[int]) -> tuple[int, int]:
    """(height, width) of the image at `offset` of a file, (0, 0) where they cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return 0, 0
    try:
        end = length if length is not None else 1 << 62
        return image_size(lambda at, n: os.pread(handle, max(0, min(n, end - at)), offset + at)) or (0, 0)
    except OSError:
        return 0, 0
    finally:
        os.close(handle)
