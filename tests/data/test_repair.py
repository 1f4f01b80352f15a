"""What can be mended is, in a copy; the rest is told."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed: tools/setup.sh dali")
from PIL import Image, ImageFile

from nnabla_torus.data.faults import find_fault
from nnabla_torus.data.repair import mend, repair
from nnabla_torus.data.scan import open_index
from nnabla_torus.data.verify import verify
from tests.data.images import encode
from tests.data.test_verify import EXIF_TURNED, files, silent


def decoded(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_copies_lie_as_the_originals_do(tmp_path: Path) -> None:
    (tmp_path / "root/train/n01").mkdir(parents=True)
    for name, (content, _) in files().items():
        (tmp_path / "root/train/n01" / name).write_bytes(content)
    index = open_index(tmp_path / "root", "train")
    faults = verify(index, silent)
    outcome = {os.path.basename(fault.path): path for fault, path in repair(index, faults, tmp_path / "out")}
    assert set(outcome) == {name for name, (_, fault) in files().items() if fault}
    lost = {"empty.JPEG", "text.JPEG", "head.JPEG", "start.JPEG", "hollow.JPEG"}
    assert {name for name, path in outcome.items() if path is None} == lost
    for name, path in outcome.items():
        if path is not None:
            assert path == tmp_path / "out/train/n01" / name
            assert find_fault(path.read_bytes(), "mended.JPEG") is None
    for name, (content, _) in files().items():
        assert (tmp_path / "root/train/n01" / name).read_bytes() == content
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


def test_a_missing_file_cannot_be_mended(tmp_path: Path) -> None:
    (tmp_path / "root/train/n01").mkdir(parents=True)
    for name in ("a.JPEG", "b.JPEG"):
        (tmp_path / "root/train/n01" / name).write_bytes(encode(16, 16))
    index = open_index(tmp_path / "root", "train")
    os.unlink(tmp_path / "root/train/n01/b.JPEG")
    ((fault, path),) = repair(index, verify(index, silent), tmp_path / "out")
    assert (fault.fault, path) == ("unreadable", None)


def test_a_mended_truncated_image_keeps_what_was_there() -> None:
    content = encode(240, 160)
    mended = decoded(mend(content[: len(content) * 2 // 3]) or b"")
    assert mended.shape == (240, 160, 3)
    assert abs(mended[:80] - decoded(content)[:80]).mean() < 4
    assert mended[-8:].std() < 4  # grey below


def test_a_mended_image_is_left_as_it_is_stored() -> None:
    with Image.open(io.BytesIO(mend(encode(120, 160, exif=EXIF_TURNED)) or b"")) as image:
        assert image.size == (160, 120) and 0x0112 not in image.getexif()


@pytest.mark.parametrize("options", [{"mode": "CMYK"}, {"kind": "PNG"}, {"kind": "BMP"}, {"mode": "L"}])
def test_mending_keeps_the_colours(options: dict[str, str]) -> None:
    content = encode(120, 160, **options)  # type: ignore[arg-type]
    mended = mend(content) or b""
    with Image.open(io.BytesIO(mended)) as image:
        assert (image.format, image.mode) == ("JPEG", "RGB")
    assert abs(decoded(mended) - decoded(content)).mean() < 4


def test_nothing_is_made_of_nothing() -> None:
    assert mend(b"") is None
    assert mend(b"nothing") is None
