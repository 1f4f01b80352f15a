"""Every fault is found and named with its path, in folders and in shards."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from nnabla_torus.data.faults import find_fault
from nnabla_torus.data.index import Index
from nnabla_torus.data.scan import open_index
from nnabla_torus.data.shards import pack
from nnabla_torus.data.verify import verify
from tests.data.images import encode

EXIF_TURNED = (
    b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"  # orientation 6: a quarter turn
)


def files() -> dict[str, tuple[bytes, str | None]]:
    """Name -> content and the fault that it has."""
    jpeg, png = encode(120, 160), encode(120, 160, kind="PNG")
    return {
        "plain.JPEG": (jpeg, None),
        "grey.JPEG": (encode(120, 160, mode="L"), None),
        "turned.JPEG": (encode(120, 160, exif=EXIF_TURNED), None),
        "progressive ü.jpg": (encode(120, 160, progressive=True), None),
        "really.png": (png, None),
        "padded.JPEG": (jpeg + bytes(512), None),
        "cmyk.JPEG": (encode(120, 160, mode="CMYK"), "CMYK"),
        "disguised.JPEG": (png, "a PNG called .JPEG"),
        "empty.JPEG": (b"", "zero bytes"),
        "text.JPEG": (b"<html>404 Not Found</html>", "not an image"),
        "webp.JPEG": (encode(120, 160, kind="WEBP"), "neither JPEG nor PNG"),
        "bmp.JPEG": (encode(120, 160, kind="BMP"), "neither JPEG nor PNG"),
        "half.JPEG": (jpeg[: len(jpeg) // 2], "truncated"),
        "head.JPEG": (jpeg[:30], "truncated"),
        "tail.JPEG": (jpeg[:-60], "truncated"),
        "half.png": (png[: len(png) // 2], "truncated"),
        "start.JPEG": (jpeg[:2], "truncated"),
        "hollow.JPEG": (jpeg[:20] + jpeg[-2:], "not an image"),
    }


def silent(items: Iterable[int], total: int) -> Iterable[int]:
    return items


@pytest.fixture
def mixed(tmp_path: Path) -> Index:
    for folder in ("n01", "n02"):
        (tmp_path / "root/train" / folder).mkdir(parents=True)
        for name, (content, fault) in files().items():
            if folder == "n01" or fault is None:
                (tmp_path / "root/train" / folder / name).write_bytes(content)
    return open_index(tmp_path / "root", "train")


def test_each_bad_file_is_listed_with_its_path_and_fault(mixed: Index) -> None:
    found = verify(mixed, silent)
    assert {one.path: one.fault for one in found} == {
        os.path.join(mixed.root, "train/n01", name): fault for name, (_, fault) in files().items() if fault
    }
    assert {one.fault for one in found if not one.stops} == {"CMYK", "a PNG called .JPEG"}


def test_a_file_without_a_readable_size_always_has_a_fault_that_stops(mixed: Index) -> None:
    stopping = {one.image for one in verify(mixed, silent) if one.stops}
    unknown = [image for image in range(len(mixed)) if mixed.heights[image] == 0]
    assert unknown and stopping.issuperset(unknown)


def test_in_shards_too(mixed: Index, tmp_path: Path) -> None:
    list(pack(mixed, range(len(mixed)), tmp_path / "packed/train", "train", per_shard=5))
    packed = verify(open_index(tmp_path / "packed", "train"), silent)
    assert [(one.image, one.fault) for one in packed] == [(one.image, one.fault) for one in verify(mixed, silent)]
    assert packed[0].path.startswith(f"{tmp_path}/packed/train/train-000000.tar:n01/")


def test_a_file_that_went_missing_is_unreadable(mixed: Index) -> None:
    gone = os.path.join(mixed.root, "train/n02/plain.JPEG")
    os.unlink(gone)
    assert [(one.fault, one.stops) for one in verify(mixed, silent) if one.path == gone] == [("unreadable", True)]


def test_faults_do_not_depend_on_threads(mixed: Index) -> None:
    assert verify(mixed, silent, threads=1) == verify(mixed, silent, threads=5)


def test_progress_sees_all_the_work(tmp_path: Path) -> None:
    (tmp_path / "train/n01").mkdir(parents=True)
    content = encode(16, 16)
    for number in range(130):
        (tmp_path / f"train/n01/{number}.JPEG").write_bytes(content)
    seen = []

    def note(items: Iterable[int], total: int) -> Iterable[int]:
        for item in items:
            seen.append((item, total))
            yield item

    assert verify(open_index(tmp_path, "train"), note) == []
    assert seen == [(0, 3), (64, 3), (128, 3)]


@pytest.mark.parametrize("content", [b"\xff\xd8", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"\xff\xd8" + bytes(5000)])
def test_what_only_begins_like_an_image_is_cut_short(content: bytes) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed: tools/setup.sh dali")
    assert find_fault(content, "a.JPEG") == "truncated"
