"""Training from image files with the command, on several ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.data.images import make_split
from tests.mpi.launch import mpirun

pytest.importorskip("nvidia.dali", reason="DALI is not installed: tools/setup.sh dali")

CONFIG = """\
epochs: 2
data:
  name: imagenet
  root: {root}
  size: 16
  test_resize: 18
  augmentation: {{random_resized_crop: {{}}, flipping: 0.5, rotation: 10, brightness: 0.2, noise: 4}}
  threads: 1
  piece: 4
model: {{name: resnet, blocks: [1], widths: [4], batch_normalization: false}}
batch_size: {{global_batch: 5}}
learning_rate: 0.05
solver: {{name: sgd}}
output: {output}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "data set ü"
    make_split(root / "train", {"n01": 5, "n02": 6, "n03": 2})
    make_split(root / "val", {"n01": 2, "n02": 3, "n03": 2})
    return root


def train(root: Path, ranks: int, *overrides: str) -> tuple[Any, list[dict[str, Any]]]:
    output = root.parent / f"run-{ranks}"
    config = root.parent / "small.yaml"
    config.write_text(CONFIG.format(root=json.dumps(str(root)), output=output), encoding="utf-8")
    done = mpirun(ranks, ["nnabla-torus", "train", config, *overrides], timeout=120)
    log = output / "log.jsonl"
    return done, [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_one_rank_and_four_see_the_same(root: Path) -> None:
    losses, accuracies = [], []
    for ranks in (1, 4):
        done, events = train(root, ranks)
        assert done.returncode == 0, done.stderr
        losses.append([event["loss"] for event in events if event["event"] == "step"])
        accuracies.append([event["top1"] for event in events if event["event"] == "evaluation"])
        assert all(event["samples"] == 7 for event in events if event["event"] == "evaluation")
    assert len(losses[0]) == 6  # 26 samples in batches of 5
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert accuracies[0] == accuracies[1]


def test_a_bad_file_ends_all_ranks_with_its_path(root: Path) -> None:
    (root / "train/n02/n02_3.JPEG").write_bytes(b"no image")
    done, _ = train(root, 3)
    assert done.returncode == 2
    assert re.search(r"^error: .*/n02_3\.JPEG cannot be decoded: not an image; ", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_a_replaced_file_is_counted_in_the_log(root: Path) -> None:
    bad = root / "train/n02/n02_3.JPEG"
    bad.write_bytes(bad.read_bytes()[:-200])
    done, events = train(root, 3, "data.on_error=replace", "data.augmentation={}")
    assert done.returncode == 0, done.stderr
    counted = [event["files"] for event in events if event["event"] == "replaced"]
    assert counted and {path for files in counted for path in files} == {str(bad)}
    assert sum(files[str(bad)] for files in counted) >= 2  # once an epoch, and what was decoded ahead


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data.root=/nowhere"], "there is no folder /nowhere/train"),
        (["data.val=train/n01"], "give the file that labels them"),
    ],
)
def test_what_is_wrong_is_told_once(root: Path, overrides: list[str], message: str) -> None:
    done, _ = train(root, 3, *overrides)
    assert done.returncode == 2
    assert len(re.findall(rf"^error: .*{message}", done.stderr, re.MULTILINE)) == 1
