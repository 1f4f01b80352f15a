"""What can be wrong with an image file, told from its bytes with Pillow."""

from __future__ import annotations

import io
import warnings
from typing import Optional

from nnabla_torus.data.image_header import JPEG, PNG, image_size

EMPTY = "zero bytes"
NO_IMAGE = "not an image"
OTHER_FORMAT = "neither JPEG nor PNG"
TRUNCATED = "truncated"
DAMAGED = "damaged"
UNREADABLE = "unreadable"
DISGUISED_PNG = "a PNG called .JPEG"
CMYK = "CMYK"

# What ends a training run that meets it; the others decode, and are only worth knowing.
STOPPING = frozenset({EMPTY, NO_IMAGE, OTHER_FORMAT, TRUNCATED, DAMAGED, UNREADABLE})
HARMLESS = frozenset({DISGUISED_PNG, CMYK})

ENDS = (b"\xff\xd9", b"IEND\xaeB`\x82")  # the last bytes of a whole JPEG and of a whole PNG


def find_fault(content: bytes, name: str) -> Optional[str]:
    """Return one of the faults above for the bytes of a file called `name`, None for a sound image."""
    from PIL import Image, UnidentifiedImageError

    if not content:
        return EMPTY
    begins = content.startswith((JPEG, PNG))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of very large images and odd metadata, both of which decode
            with Image.open(io.BytesIO(content)) as image:
                mode = image.mode
                if begins:
                    image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if begins and not content.rstrip(b"\0").endswith(ENDS):
            return TRUNCATED
        return NO_IMAGE if isinstance(error, UnidentifiedImageError) else DAMAGED
    if image_size(lambda at, length: content[at : at + length]) is None:
        return OTHER_FORMAT
    if content.startswith(PNG) and not name.lower().endswith(".png"):
        return DISGUISED_PNG
    return CMYK if mode == "CMYK" else None
