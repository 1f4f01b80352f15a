from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from nnabla_torus.data.index import Index
from nnabla_torus.data.scan import open_index
from nnabla_torus.data.shards import pack, read_image
from nnabla_torus.failure import UserError
from tests.data.images import encode, make_split


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def contents(index: Index) -> list[tuple[int, bytes]]:
    return [(int(index.labels[image]), read_image(index, image)) for image in range(len(index))]


def test_images_are_found_by_offset(tmp_path: Path) -> None:
    images = [encode(20 + n, 30, seed=n) for n in range(4)]
    write_tar(tmp_path / "t/a-0.tar", {"k1.jpg": images[0], "k1.cls": b"1", "k0.cls": b"0\n", "k0.jpg": images[1]})
    write_tar(tmp_path / "t/a-1.tar", {"ü/k.x.JPEG": b"other", "ü/k.cls": b"2", "ü/k.jpg": images[2], "k.txt": b""})
    index = open_index(tmp_path, "t")
    assert index.in_shards
    assert contents(index) == [(1, images[0]), (0, images[1]), (2, images[2])]
    assert index.heights.tolist() == [20, 21, 22]
    assert index.classes == ["0", "1", "2"]
    assert index.describe(2) == f"{tmp_path}/t/a-1.tar:ü/k.jpg"
    assert contents(open_index(tmp_path, "t", build=False)) == contents(index)


def test_a_pattern_takes_some_shards(tmp_path: Path) -> None:
    write_tar(tmp_path / "train-0.tar", {"k.jpg": encode(8, 8), "k.cls": b"0"})
    write_tar(tmp_path / "val-0.tar", {"k.jpg": encode(9, 9), "k.cls": b"0"})
    assert open_index(tmp_path, "val-*.tar").heights.tolist() == [9]
    with pytest.raises(UserError, match=r"no \.tar shards match"):
        open_index(tmp_path, "test-*.tar")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"k.jpg": b"", "l.cls": b"0"}, "has no k.cls for its image"),
        ({"k.jpg": b"", "k.cls": b"cat"}, "holds 'cat'; it must hold a class number"),
        ({"k.jpg": b"", "k.cls": b"1", "l.jpg": b"", "l.cls": b"2"}, "run from 1 to 2; they must start at 0"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, members: dict[str, bytes], message: str) -> None:
    write_tar(tmp_path / "t/a.tar", members)
    with pytest.raises(UserError, match=message):
        open_index(tmp_path, "t")


def test_a_cut_shard(tmp_path: Path) -> None:
    write_tar(tmp_path / "t/a.tar", {"k.jpg": encode(80, 80), "k.cls": b"0"})
    (tmp_path / "t/a.tar").write_bytes((tmp_path / "t/a.tar").read_bytes()[:700])
    with pytest.raises(UserError, match="must be a whole, uncompressed tar"):
        open_index(tmp_path, "t")


def test_packing_keeps_images_labels_and_classes(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 3, "n02": 0, "ñ 3": 4})
    folders = open_index(tmp_path, "train")
    order = [6, 0, 3, 5, 1, 2, 4]
    made = list(pack(folders, order, tmp_path / "packed/train", "train", per_shard=3))
    assert [path.name for path in made] == ["train-000000.tar", "train-000001.tar", "train-000002.tar"]
    packed = open_index(tmp_path / "packed", "train")
    assert packed.classes == ["n01", "n02", "ñ 3"]
    assert contents(packed) == [contents(folders)[image] for image in order]
    again = list(pack(folders, order, tmp_path / "again/train", "train", per_shard=3))
    assert [path.read_bytes() for path in made] == [path.read_bytes() for path in again]
