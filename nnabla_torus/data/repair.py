"""Mends image files where that is possible, in copies; the data itself is never touched.

| fault | mended copy |
|---|---|
| truncated, damaged | what can be decoded, grey below |
| neither JPEG nor PNG | as JPEG |
| PNG called .JPEG, CMYK | as RGB JPEG |
| zero bytes, not an image, unreadable | none |
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Optional

from PIL import Image, ImageFile

from nnabla_torus.data.index import Index
from nnabla_torus.data.shards import read_image
from nnabla_torus.data.verify import Found

QUALITY = 95


def repair(index: Index, faults: Iterable[Found], out: Path) -> Iterator[tuple[Found, Optional[Path]]]:
    """Write a mended copy of each image where that is possible, below `out` as it lies below the root.

    Yields each fault with the copy's path, None where nothing could be mended. Raises OSError when it cannot write.
    """
    for fault in faults:
        try:
            mended = mend(read_image(index, fault.image))
        except OSError:
            mended = None
        if mended is None:
            yield fault, None
            continue
        path = out / index.container(fault.image) / os.fsdecode(index.name(fault.image))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(mended)
        yield fault, path


def mend(content: bytes) -> Optional[bytes]:
    """Return the image as a whole RGB JPEG, its pixels as they are stored; None where nothing can be decoded."""
    written = io.BytesIO()
    try:
        with _accepting_truncated(), Image.open(io.BytesIO(content)) as image:
            image.convert("RGB").save(
                written, "JPEG", quality=QUALITY, subsampling=0
            )  # colours keep their full resolution
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return written.getvalue()


@contextlib.contextmanager
def _accepting_truncated() -> Iterator[None]:
    before = ImageFile.LOAD_TRUNCATED_IMAGES  # Pillow offers this only for the whole process
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    try:
        yield
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before
