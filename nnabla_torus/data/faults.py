"""What can be wrong with an image file, told from its bytes with Pillow."""

from __future__ import annotations

import io
import warnings
from typing import Optional

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


def find_fault(content: bytes, name: str) -> Optional[str]:
    """Return one of the faults above for the bytes of a file called `name`, None for a sound image."""
    from PIL import Image, UnidentifiedImageError

    if not content:
        return EMPTY
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of very large images and odd metadata, both of which decode
            image = Image.open(io.BytesIO(content))
            kind, mode = image.format, image.mode
            if kind not in ("JPEG", "PNG"):
                return OTHER_FORMAT
            image.load()
    except UnidentifiedImageError:
        return NO_IMAGE
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return TRUNCATED if "truncated" in str(error).lower() else DAMAGED
    if kind == "PNG" and not name.lower().endswith(".png"):
        return DISGUISED_PNG
    return CMYK if mode == "CMYK" else None
