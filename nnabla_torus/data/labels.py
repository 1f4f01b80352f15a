"""Labels that are not folder names: the devkit's ground truth, Kaggle's table, and text lists.

| form | content | class |
|---|---|---|
| `ILSVRC2012_validation_ground_truth.txt` | one id a line, by sorted names | 1-based id, through `meta.mat` beside it |
| `LOC_val_solution.csv` (Kaggle) | `ImageId,PredictionString` | the first wnid of the prediction string |
| a text list | `file label` a line | a number from 0, in the order of the sorted wnids, or a wnid |
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from nnabla_torus.failure import UserError

KAGGLE_HEADER = "ImageId,PredictionString"
META = "meta.mat"


def read_labels(file: Path, names: list[bytes], classes: list[str]) -> np.ndarray:
    """Return the class of each of the sorted `names` (files of a flat folder), int32 (n), by the label file's own form.

    Raises UserError where the file cannot be read, an image has no label, or a label is none of the classes.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise UserError(f"labels {file} cannot be read: {error.strerror}; name an existing label file") from None
    lines = [line.strip() for line in lines if line.strip()]
    if not lines:
        raise UserError(f"labels {file} is empty; it must label {len(names)} images")
    if lines[0].replace(" ", "").startswith(KAGGLE_HEADER):
        return _lookup(file, _kaggle(lines), names, classes)
    if all(line.isdigit() for line in lines):
        return _ground_truth(file, lines, names, classes)
    return _lookup(file, _text_list(file, lines), names, classes)


def check_numbers(labels: np.ndarray, classes: int, where: str) -> np.ndarray:
    """Return labels as int32 if all lie in 0 .. classes-1; raises UserError, also for one that starts at 1."""
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        lowest, highest = int(labels.min()), int(labels.max())
        counted = " (it counts from 1)" if (lowest, highest) == (1, classes) else ""
        raise UserError(
            f"labels in {where} run from {lowest} to {highest}{counted}; with {classes} classes they must run "
            f"from 0 to {classes - 1}"
        )
    return labels.astype(np.int32)


def devkit_classes(meta: Path) -> dict[int, str]:
    """Return wnid by the devkit's 1-based ILSVRC2012_ID, from its meta.mat. Raises UserError."""
    try:
        from scipy.io import loadmat
    except ImportError:
        raise UserError(f"reading {meta} needs SciPy; pip install 'nnabla-torus[dali]'") from None
    try:
        synsets = loadmat(str(meta), squeeze_me=True)["synsets"]
        return {int(synset["ILSVRC2012_ID"]): str(synset["WNID"]) for synset in np.atleast_1d(synsets)}
    except OSError:
        raise UserError(f"{meta} cannot be read; the devkit's ground truth needs its meta.mat beside it") from None
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise UserError(f"{meta} is not the devkit's meta.mat ({error}); copy it from ILSVRC2012_devkit_t12") from None


def _kaggle(lines: list[str]) -> dict[str, str]:
    return {row[0]: row[1].split()[0] for row in csv.reader(lines[1:]) if len(row) > 1 and row[1].split()}


def _text_list(file: Path, lines: list[str]) -> dict[str, str]:
    found = {}
    for number, line in enumerate(lines, 1):
        parts = line.rsplit(None, 1)  # a file's name may hold spaces, a label does not
        if len(parts) != 2:
            raise UserError(f"labels {file}, line {number}: {line!r} is not 'file label'")
        found[os.path.basename(parts[0])] = parts[1]
    return found


def _lookup(file: Path, labels: dict[str, str], names: list[bytes], classes: list[str]) -> np.ndarray:
    by_class = {name: number for number, name in enumerate(classes)}
    missing, found = [], []
    for name in map(os.fsdecode, names):
        label = labels.get(name, labels.get(os.path.splitext(name)[0]))
        if label is None:
            missing.append(name)
        elif label in by_class:
            found.append(by_class[label])
        elif label.lstrip("-").isdigit():
            found.append(int(label))
        else:
            raise UserError(
                f"labels {file} give {name} the class {label!r}, which is none of the {len(classes)} classes"
            )
    if missing:
        raise UserError(
            f"labels {file} have no label for {len(missing)} of {len(names)} images, the first {missing[0]!r}; "
            "every image needs one"
        )
    return check_numbers(np.array(found, np.int64), len(classes), str(file))


def _ground_truth(file: Path, lines: list[str], names: list[bytes], classes: list[str]) -> np.ndarray:
    if len(lines) != len(names):
        raise UserError(
            f"labels {file} hold {len(lines)} ids for {len(names)} images; there must be one each, in order"
        )
    wnids = devkit_classes(file.with_name(META))
    by_class = {name: number for number, name in enumerate(classes)}
    try:
        return np.array([by_class[wnids[int(line)]] for line in lines], np.int32)
    except KeyError as error:
        raise UserError(
            f"labels {file} hold {error.args[0]!r}, which {META} and the {len(classes)} classes do not have both; "
            "they must come from the same devkit and training set"
        ) from None
