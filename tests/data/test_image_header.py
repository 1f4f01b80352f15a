from __future__ import annotations

import struct

import pytest

from nnabla_torus.data.image_header import image_size
from tests.data.images import encode


def size_of(content: bytes) -> tuple[int, int] | None:
    return image_size(lambda offset, length: content[offset : offset + length])


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
def test_jpeg(mode: str, progressive: bool) -> None:
    assert size_of(encode(33, 57, mode=mode, progressive=progressive)) == (33, 57)


def test_a_png_in_disguise() -> None:
    assert size_of(encode(33, 57, kind="PNG")) == (33, 57)


def test_a_long_profile_before_the_frame_is_skipped() -> None:
    content = encode(33, 57)
    profile = b"\xff\xe2" + struct.pack(">H", 60_002) + bytes(60_000)
    assert size_of(content[:2] + profile + profile + content[2:]) == (33, 57)


def test_exif_orientation_is_left_alone() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: tools/setup.sh dali")
    exif = image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees to show
    assert size_of(encode(33, 57, exif=exif)) == (33, 57)


@pytest.mark.parametrize("content", [b"", b"\xff\xd8", b"\xff\xd8\xff", b"text" * 99, b"\x89PNG\r\n\x1a\n"])
def test_no_image(content: bytes) -> None:
    assert size_of(content) is None


def test_cut_before_the_frame() -> None:
    assert size_of(encode(33, 57)[:100]) is None


def test_every_cut_is_either_the_size_or_nothing() -> None:
    content = encode(33, 57)
    assert {size_of(content[:end]) for end in range(len(content))} == {None, (33, 57)}
