from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from nnabla_torus.data.index import Index
from nnabla_torus.data.scan import open_index
from nnabla_torus.failure import UserError
from tests.data.images import encode, make_split


def paths(index: Index) -> list[str]:
    return [os.fsdecode(index.path(image)) for image in range(len(index))]


def test_folders_are_numbered_by_sorted_name(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n02": 2, "n01": 1, "n10": 3})
    index = open_index(tmp_path, "train")
    assert index.classes == ["n01", "n02", "n10"]
    assert index.labels.tolist() == [0, 1, 1, 2, 2, 2]
    assert index.counts().tolist() == [1, 2, 3]
    # images are drawn in the order n02, n01, n10, each one larger than the last
    assert index.heights.tolist() == [42, 40, 41, 43, 44, 45]
    assert index.widths.tolist() == [42, 40, 41, 43, 44, 40]
    assert paths(index)[:2] == [str(tmp_path / "train/n01/n01_0.JPEG"), str(tmp_path / "train/n02/n02_0.JPEG")]
    assert index.describe(5) == str(tmp_path / "train/n10/n10_2.JPEG")
    assert index.notes == []


def test_empty_class_stray_files_spaces_and_unicode(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 1, "n03": 0, "ñ 02": 1})
    (tmp_path / "train/n01/read me.txt").write_text("no image")
    (tmp_path / "train/n01/.hidden.JPEG").write_text("no image")
    (tmp_path / "train/README").write_text("no image")
    (tmp_path / "train/n01/ein bild ü.jpg").write_bytes(encode(8, 9))
    index = open_index(tmp_path, "train")
    assert index.classes == ["n01", "n03", "ñ 02"]
    assert index.counts().tolist() == [2, 0, 1]
    assert paths(index)[0] == str(tmp_path / "train/n01/ein bild ü.jpg")
    assert all(Path(path).is_file() for path in paths(index))
    assert index.notes == [
        "entries of train that are no images: 1",
        "entries of train/n01 that are no images: 2",
        "class train/n03 is empty",
    ]


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 0})
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/train/n01/\xff\xfe.jpg")).write_bytes(encode(8, 9))
    open_index(tmp_path, "train")
    again = open_index(tmp_path, "train", build=False)
    assert again.path(0) == os.fsencode(tmp_path) + b"/train/n01/\xff\xfe.jpg"


def test_unreadable_headers_are_counted(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 2})
    (tmp_path / "train/n01/n01_0.JPEG").write_bytes(b"")
    index = open_index(tmp_path, "train")
    assert index.heights.tolist() == [0, 41]
    assert index.notes == ["files without a readable image header: 1; 'nnabla-torus prepare verify' names them"]


def test_the_index_is_kept_until_the_folder_changes(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 2, "n02": 1})
    with pytest.raises(UserError, match="does not belong"):
        open_index(tmp_path, "train", build=False)
    first = open_index(tmp_path, "train")
    kept = open_index(tmp_path, "train", build=False)
    assert paths(kept) == paths(first)
    assert kept.labels.tolist() == [0, 0, 1]
    (tmp_path / "train/n02/new.jpg").write_bytes(encode(8, 9))
    with pytest.raises(UserError, match="does not belong"):
        open_index(tmp_path, "train", build=False)
    assert len(open_index(tmp_path, "train")) == 4


def test_a_damaged_index_is_made_again(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 2})
    open_index(tmp_path, "train")
    (tmp_path / ".nnabla_torus/train.index/labels.npy").write_bytes(b"cut")
    assert len(open_index(tmp_path, "train")) == 2


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 1})
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        open_index(tmp_path, "train", cache=tmp_path / "file")
    assert len(open_index(tmp_path, "train", cache=tmp_path / "elsewhere")) == 1


def test_memory_of_an_image(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01440764": 0})
    content = encode(8, 8)
    for image in range(200):
        (tmp_path / f"train/n01440764/n01440764_{image:05d}.JPEG").write_bytes(content)
    index = open_index(tmp_path, "train")
    assert index.nbytes / len(index) < 4 + 2 + 2 + 8 + 20 + 1  # label, height, width, end of name, name


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda train: None, "there is no folder"),
        (lambda train: train.mkdir(), r"holds no class folders, no \.tar shards and no images"),
        (lambda train: (train / "n01").mkdir(parents=True), "hold no images"),
        (lambda train: make_split(train, {"": 0}) or (train / "a.jpg").write_bytes(b""), "give the file that labels"),
        (lambda train: make_split(train, {"": 0}) or (train / "a.tar.gz").write_bytes(b""), "is compressed"),
    ],
)
def test_folders_that_hold_nothing_to_train_on(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path / "train")  # type: ignore[operator]
    with pytest.raises(UserError, match=message):
        open_index(tmp_path, "train")


def test_large_set_of_names_comes_back(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"a": 30, "b": 1, "c": 30})
    open_index(tmp_path, "train")
    kept = open_index(tmp_path, "train", build=False)
    expected = sorted((p for p in (tmp_path / "train").rglob("*.JPEG")), key=lambda p: (p.parent.name, p.name))
    assert paths(kept) == list(map(str, expected))
    assert np.array_equal(kept.counts(), [30, 1, 30])
