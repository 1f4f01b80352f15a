from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nnabla_torus.data.scan import open_index
from nnabla_torus.failure import UserError
from tests.data.images import encode

CLASSES = ["n01", "n02", "n03"]
NAMES = ["ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG", "b c.jpg", "a.jpg"]
SORTED = [0, 1, 3, 2]  # numbers of NAMES in sorted order


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "val").mkdir()
    for number, name in enumerate(NAMES):
        (tmp_path / "val" / name).write_bytes(encode(10 + number, 10))
    return tmp_path


def labels_of(root: Path, name: str, content: str) -> list[int]:
    (root / name).write_text(content, encoding="utf-8")
    index = open_index(root, "val", labels=root / name, classes=CLASSES)
    assert index.heights.tolist() == [10 + number for number in SORTED]
    assert index.classes == CLASSES
    return index.labels.tolist()


def devkit(root: Path, wnids: dict[int, str]) -> None:
    savemat = pytest.importorskip("scipy.io", reason="SciPy is not installed: tools/setup.sh dali").savemat
    synsets = np.array(
        [(number, wnid, 0) for number, wnid in wnids.items()],
        dtype=[("ILSVRC2012_ID", object), ("WNID", object), ("num_children", object)],
    )
    savemat(str(root / "meta.mat"), {"synsets": synsets})


def test_text_list_of_numbers(root: Path) -> None:
    lines = [f"{name} {label}" for name, label in zip(NAMES, [0, 1, 2, 1])]
    assert labels_of(root, "val.txt", "\n".join(lines)) == [0, 1, 1, 2]


def test_text_list_of_wnids_with_folders(root: Path) -> None:
    lines = [f"val/{name}\t{label}" for name, label in zip(NAMES, ["n03", "n01", "n02", "n02"])]
    assert labels_of(root, "val.txt", "\n".join(lines)) == [2, 0, 1, 1]


def test_kaggle(root: Path) -> None:
    ids = [name.rsplit(".", 1)[0] for name in NAMES]
    rows = [f"{name},{wnid} 1 2 3 4 {wnid} 5 6 7 8 " for name, wnid in zip(ids, ["n02", "n01", "n03", "n02"])]
    assert labels_of(root, "LOC_val_solution.csv", "\n".join(["ImageId,PredictionString", *rows])) == [1, 0, 1, 2]


def test_devkit_ids_go_through_meta(root: Path) -> None:
    devkit(root, {1: "n03", 2: "n01", 3: "n02", 4: "n00000000"})  # the fourth stands for a synset above the leaves
    assert labels_of(root, "ILSVRC2012_validation_ground_truth.txt", "1\n2\n3\n3\n") == [2, 0, 1, 1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a.jpg 1", "no label for 3 of 4 images, the first 'ILSVRC2012_val_00000001.JPEG'"),
        ("\n".join(f"{name} {n}" for name, n in zip(NAMES, [1, 2, 3, 1])), r"run from 1 to 3 \(it counts from 1\)"),
        ("\n".join(f"{name} {n}" for name, n in zip(NAMES, [0, 2, 3, 1])), "run from 0 to 3; with 3 classes"),
        ("\n".join(f"{name} {n}" for name, n in zip(NAMES, [0, 2, -1, 1])), "run from -1 to 2"),
        ("\n".join(f"{name} n09" for name in NAMES), "'n09', which is none of the 3 classes"),
        ("file\n", "line 1: 'file' is not 'file label'"),
        ("1\n2\n", "hold 2 ids for 4 images"),
        ("1\n2\n3\n1\n", "meta.mat cannot be read"),
    ],
)
def test_what_is_wrong_is_named(root: Path, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        labels_of(root, "val.txt", content)


def test_devkit_of_other_classes(root: Path) -> None:
    devkit(root, {1: "n03", 2: "n77"})
    with pytest.raises(UserError, match="must come from the same devkit"):
        labels_of(root, "truth.txt", "1\n2\n1\n1\n")


def test_missing_label_file(root: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        open_index(root, "val", labels=root / "none.txt", classes=CLASSES)


def test_labels_beside_class_folders(root: Path) -> None:
    (root / "train/n01").mkdir(parents=True)
    with pytest.raises(UserError, match="not needed"):
        open_index(root, "train", labels=root / "val.txt")


def test_changed_labels_are_noticed(root: Path) -> None:
    lines = [f"{name} 0" for name in NAMES]
    assert labels_of(root, "val.txt", "\n".join(lines)) == [0, 0, 0, 0]
    assert labels_of(root, "val.txt", "\n".join([*lines[:3], "a.jpg 02"])) == [0, 0, 2, 0]
