"""Uncompressed tar shards in WebDataset form: `KEY.jpg` and `KEY.cls` (a number from 0) beside each other.

A shard is read by offset, so any image of any shard is one read. `classes.txt` beside the shards names the classes in
the order of their numbers; without it they are called by their numbers.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nnabla_torus.data.index import Index
from nnabla_torus.failure import UserError

CLASSES = "classes.txt"
IMAGES = (".jpg", ".jpeg", ".png")
LABEL = ".cls"


@dataclass(frozen=True)
class Member:
    """An image within a shard: its name, where its bytes lie, its class."""

    name: bytes
    offset: int
    length: int
    label: int


def list_members(path: bytes) -> list[Member]:
    """Return a shard's images in their order on disk, with their labels. Raises UserError where it is no such shard."""
    shard = os.fsdecode(path)
    images: dict[str, tarfile.TarInfo] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                key, suffix = split_key(member.name)
                if not member.isreg():
                    continue
                if suffix == LABEL:
                    labels[key] = _label(tar, member, shard)
                elif suffix in IMAGES:
                    images[key] = member
    except (tarfile.TarError, OSError) as error:
        raise UserError(f"shard {shard} cannot be read: {error}; it must be a whole, uncompressed tar file") from None
    missing = [key for key in images if key not in labels]
    if missing:
        raise UserError(f"shard {shard} has no {missing[0]}{LABEL} for its image; every image needs a {LABEL} member")
    return [
        Member(os.fsencode(member.name), member.offset_data, member.size, labels[key]) for key, member in images.items()
    ]


def read_classes(folder: Path) -> list[str]:
    """Return the names in `classes.txt`, none where there is no such file."""
    try:
        return (folder / CLASSES).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def split_key(name: str) -> tuple[str, str]:
    """Split a member's name as WebDataset does: the key ends at the first dot of the last part; (key, lower suffix)."""
    folder, _, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return (f"{folder}/{stem}" if folder else stem), (dot + suffix).lower()


def read_member(path: bytes, offset: int, length: int) -> bytes:
    """Return an image's bytes from its shard. Raises OSError, also where the shard ends before them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        content = os.pread(handle, length, offset)
    finally:
        os.close(handle)
    if len(content) != length:
        raise OSError(f"{os.fsdecode(path)} ends within the image at {offset}")
    return content


def pack(index: Index, order: Iterable[int], out: Path, prefix: str, per_shard: int) -> Iterator[Path]:
    """Write the images of a split as shards `out/PREFIX-000000.tar`, ... in the given order; yields each when whole.

    The same bytes for the same images and order: members have no owner and no time. Raises OSError.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / CLASSES).write_text("".join(f"{name}\n" for name in index.classes), "utf-8", "surrogateescape")
    waiting = list(order)
    for number, start in enumerate(range(0, len(waiting), per_shard)):
        path = out / f"{prefix}-{number:06d}.tar"
        unfinished = path.with_suffix(".unfinished")
        with tarfile.open(unfinished, "w", format=tarfile.PAX_FORMAT) as tar:
            for image in waiting[start : start + per_shard]:
                _add(tar, index, image)
        unfinished.rename(path)
        yield path


def _add(tar: tarfile.TarFile, index: Index, image: int) -> None:
    # The number goes first: it keeps keys apart whose names would be the same up to their first dot.
    suffix = os.path.splitext(index.name(image))[1].decode().lower().replace(".jpeg", ".jpg")
    key = f"{index.classes[index.labels[image]]}/{image:08d}"
    for name, content in (
        (key + suffix, read_image(index, image)),
        (key + LABEL, str(int(index.labels[image])).encode()),
    ):
        member = tarfile.TarInfo(name)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))


def read_image(index: Index, image: int) -> bytes:
    """Return the encoded bytes of one image, from its file or its shard. Raises OSError."""
    path = index.path(image)
    if index.in_shards:
        return read_member(path, int(index.offsets[image]), int(index.lengths[image]))
    with open(path, "rb") as file:
        return file.read()


def _label(tar: tarfile.TarFile, member: tarfile.TarInfo, shard: str) -> int:
    file = tar.extractfile(member)
    text = file.read().decode(errors="replace").strip() if file else ""
    if not text.isdigit():
        raise UserError(f"shard {shard}: {member.name} holds {text[:20]!r}; it must hold a class number from 0")
    return int(text)
