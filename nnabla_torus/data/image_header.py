"""The size of an image from its first bytes, without decoding it: JPEG, and PNG, which in ImageNet hides as .JPEG."""

from __future__ import annotations

from typing import Callable, Optional

Read = Callable[[int, int], bytes]
"""Returns up to `length` bytes from `offset` of the file; fewer at its end."""

JPEG = b"\xff\xd8"
PNG = b"\x89PNG\r\n\x1a\n"
# Start-of-frame markers: 0xC0 to 0xCF without DHT (C4), JPG (C8) and DAC (CC), ITU-T T.81, table B.1.
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
ALONE = frozenset({0x01, *range(0xD0, 0xD8)})  # markers without a segment
END = frozenset({0xD9, 0xDA})  # end of image, start of scan: no frame header follows
CHUNK = 4096
LARGEST = 0xFFFF


def image_size(read: Read) -> Optional[tuple[int, int]]:
    """(height, width) in pixels as stored, whatever EXIF says of turning; None when it is no readable JPEG or PNG."""
    start = read(0, CHUNK)
    if start.startswith(PNG):
        height, width = int.from_bytes(start[20:24], "big"), int.from_bytes(start[16:20], "big")
        return _plausible(height, width) if start[12:16] == b"IHDR" and len(start) >= 24 else None
    if not start.startswith(JPEG):
        return None
    return _jpeg_size(start, read)


def _jpeg_size(chunk: bytes, read: Read) -> Optional[tuple[int, int]]:
    base, at = 0, 2  # `at` counts from the start of the file, `base` is where the chunk begins
    while True:
        if at - base + 9 > len(chunk):  # marker, length, precision, height and width must lie in the chunk
            base, chunk = at, read(at, CHUNK)
            if len(chunk) < 4:
                return None
        here = at - base
        if chunk[here] != 0xFF:
            return None
        marker = chunk[here + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker in ALONE:
            at += 2
        elif marker in END:
            return None
        elif marker in FRAMES:
            frame = chunk[here + 5 : here + 9]
            return _plausible(int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:], "big"))
        else:
            at += 2 + int.from_bytes(chunk[here + 2 : here + 4], "big")


def _plausible(height: int, width: int) -> Optional[tuple[int, int]]:
    return (height, width) if 0 < height <= LARGEST and 0 < width <= LARGEST else None
