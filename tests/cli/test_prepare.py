"""`nnabla-torus prepare`: what each subcommand leaves on disk, prints, and ends with."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nnabla_torus.cli.prepare import prepare
from nnabla_torus.data.scan import open_index
from nnabla_torus.data.shards import read_image
from nnabla_torus.failure import UserError
from tests.data.images import encode, make_split


def run(*arguments: str | Path) -> tuple[int, str]:
    """Return the status that the command ends with and what it prints; raises the UserError that it raises."""
    result: Result = CliRunner().invoke(prepare, list(map(str, arguments)), standalone_mode=False)
    if result.exception:
        raise result.exception
    return result.return_value or 0, result.output


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_split(tmp_path / "root/train", {"n01": 3, "n02": 4})
    make_split(tmp_path / "root/val", {"n01": 1, "n02": 2})
    return tmp_path / "root"


def test_a_drawn_set_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed: tools/setup.sh dali")
    status, _ = run("synthetic", tmp_path / "set", "--classes", "4", "--per-class", "3", "--val-per-class", "2")
    assert status == 0
    status, printed = run("verify", tmp_path / "set", "--json", tmp_path / "report.json")
    assert status == 0
    assert "train: 12 images of 4 classes, 3 (n90000000) to 3 (n90000000) each; 0 with a fault" in printed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["stopping"] == 0
    assert report["splits"]["val"]["classes"] == {f"n9000000{number}": 2 for number in range(4)}


def test_verify_lists_path_and_fault_and_fails_on_what_stops_training(root: Path, tmp_path: Path) -> None:
    (root / "train/n02/odd.JPEG").write_bytes(encode(20, 20, mode="CMYK"))
    (root / "train/n02/notes.txt").write_text("not counted")
    status, printed = run("verify", root)
    assert status == 0
    assert f"{root}/train/n02/odd.JPEG: CMYK (decodes)\n" in printed
    assert "note: entries of train/n02 that are no images: 1" in printed
    (root / "val/n01/cut ü.JPEG").write_bytes(encode(60, 60)[:-50])
    status, printed = run("verify", root, "--json", tmp_path / "report.json")
    assert status == 1
    assert f"{root}/val/n01/cut ü.JPEG: truncated\n" in printed
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["root"] == str(root) and report["stopping"] == 1
    assert report["splits"]["train"]["images"] == 8
    assert report["splits"]["train"]["classes"] == {"n01": 3, "n02": 5}
    assert report["splits"]["val"]["faults"] == [
        {"path": f"{root}/val/n01/cut ü.JPEG", "fault": "truncated", "stops": True}
    ]


def test_verify_without_a_validation_split_and_with_a_labelled_one(root: Path) -> None:
    shutil.rmtree(root / "val")
    with pytest.raises(UserError, match="there is no folder"):
        run("verify", root)
    status, printed = run("verify", root, "--val", "none")
    assert status == 0 and "val:" not in printed
    (root / "val").mkdir()
    for number in range(2):
        (root / f"val/{number}.JPEG").write_bytes(encode(20, 20, seed=number))
    (root / "val.txt").write_text("0.JPEG 1\n1.JPEG 2\n")
    with pytest.raises(UserError, match=r"run from 1 to 2 \(it counts from 1\)"):
        run("verify", root, "--val-labels", root / "val.txt")
    (root / "val.txt").write_text("0.JPEG 0\n1.JPEG 1\n")
    status, printed = run("verify", root, "--val-labels", root / "val.txt")
    assert status == 0 and "val: 2 images of 2 classes, 1 (n01) to 1 (n01) each" in printed


def test_splits_with_other_classes_are_told(root: Path) -> None:
    shutil.rmtree(root / "val/n02")
    with pytest.raises(UserError, match=r"2 training classes .* 1 test classes.*n02 is in the training set only"):
        run("verify", root)


def test_repair_mends_copies_and_fails_where_it_cannot(root: Path, tmp_path: Path) -> None:
    cut = root / "train/n01/cut.JPEG"
    cut.write_bytes(encode(60, 60)[:-50])
    status, printed = run("repair", root, "--out", tmp_path / "mended")
    assert status == 0
    assert f"{cut}: truncated, mended in {tmp_path}/mended/train/n01/cut.JPEG\n" in printed
    shutil.copytree(tmp_path / "mended", root, dirs_exist_ok=True)
    assert run("verify", root)[0] == 0
    (root / "val/n01/empty.JPEG").touch()
    status, printed = run("repair", root, "--out", tmp_path / "again")
    assert status == 1 and f"{root}/val/n01/empty.JPEG: zero bytes, cannot be mended\n" in printed
    with pytest.raises(UserError, match="is the data itself"):
        run("repair", root, "--out", f"{root}/../root")


def test_packing_makes_shards_and_their_index(root: Path, tmp_path: Path) -> None:
    status, _ = run("pack", root, tmp_path / "packed", "--per-shard", "3")
    assert status == 0
    names = sorted(os.listdir(tmp_path / "packed/train"))
    assert names == ["classes.txt", "train-000000.tar", "train-000001.tar", "train-000002.tar"]
    with tarfile.open(tmp_path / "packed/val/val-000000.tar") as tar:
        assert len(tar.getnames()) == 2 * 3
    for split in ("train", "val"):
        packed, folders = open_index(tmp_path / "packed", split, build=False), open_index(root, split)
        assert packed.classes == folders.classes
        both = [
            sorted((int(index.labels[image]), read_image(index, image)) for image in range(len(index)))
            for index in (packed, folders)
        ]
        assert both[0] == both[1]
    with pytest.raises(UserError, match="not empty"):
        run("pack", root, tmp_path / "packed")


def test_packing_names_a_file_that_went_missing(root: Path, tmp_path: Path) -> None:
    run("index", root)
    index = open_index(root, "train")
    path = Path(os.fsdecode(index.path(0)))
    modified = path.parent.stat()
    path.unlink()
    os.utime(path.parent, ns=(modified.st_atime_ns, modified.st_mtime_ns))  # the kept index still fits
    with pytest.raises(UserError, match=f"stopped.*{path.name}"):
        run("pack", root, tmp_path / "packed")


def test_indexing_keeps_the_index_where_it_is_told(root: Path, tmp_path: Path) -> None:
    status, printed = run("index", root, "--index", tmp_path / "indexes")
    assert status == 0
    assert "train: 7 images of 2 classes, 3 (n01) to 4 (n02) each" in printed
    assert not (root / ".nnabla_torus").exists()
    assert len(open_index(root, "val", cache=tmp_path / "indexes", build=False)) == 3
