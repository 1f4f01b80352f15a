"""Checkpoints on disk: one folder each, whole or not there.

    checkpoints/
      latest                  the name of the newest one
      step-00000480/
        state.json            where the run stands, and what it is
        parameters.h5         as nnabla.load_parameters reads it; batch statistics combined over ranks
        solver.h5             what the solver remembers, by parameter
        ranks.h5              batch statistics of each rank
        SHA256SUMS            of the others; `sha256sum -c` checks them too

A folder is written beside, with its files on the disk, then renamed; `latest` moves last. So a crash at any time leaves
the checkpoint before. Nothing is pickled: reading a checkpoint runs nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from nnabla_torus.failure import UserError

FORMAT = 1
LATEST = "latest"
STATE, PARAMETERS, SOLVER, RANKS, SUMS = "state.json", "parameters.h5", "solver.h5", "ranks.h5", "SHA256SUMS"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on; `trainable` names the parameters that the solver updates."""

    state: Mapping[str, Any]
    parameters: Arrays
    trainable: frozenset[str]
    solver: Arrays
    ranks: Arrays


def write(folder: Path, name: str, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint as folder/name, point `latest` to it, and return its path."""
    files = {
        STATE: json.dumps({"format": FORMAT, **checkpoint.state}, indent=1).encode(),
        PARAMETERS: _parameters_image(checkpoint),
        SOLVER: _image(checkpoint.solver),
        RANKS: _image(checkpoint.ranks),
    }
    files[SUMS] = "".join(f"{_sum(data)}  {file}\n" for file, data in files.items()).encode()
    folder.mkdir(parents=True, exist_ok=True)
    part, whole = folder / f".{name}.part", folder / name
    for left_behind in (part, whole):  # whole: of a run that went on from an earlier checkpoint and came here again
        if left_behind.exists():
            shutil.rmtree(left_behind)
    part.mkdir()
    for file, data in files.items():
        _write_to_disk(part / file, data)
    _sync(part)
    part.rename(whole)
    _sync(folder)
    pointer = folder / f".{LATEST}.part"
    _write_to_disk(pointer, f"{name}\n".encode())
    pointer.rename(folder / LATEST)
    _sync(folder)
    return whole


def latest(folder: Path) -> Path | None:
    """Return where `latest` points, None when there is no checkpoint; raises UserError when it points nowhere."""
    try:
        name = (folder / LATEST).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    path = folder / name
    if not name or not path.is_dir():
        there = ", ".join(names(folder)) or "none"
        raise UserError(f"{folder / LATEST} names {name!r}, which is not there; write one of these into it: {there}")
    return path


def names(folder: Path) -> list[str]:
    """Return the names of the whole checkpoints in a folder, the oldest first."""
    whole = sorted(folder.glob(f"[!.]*/{SUMS}"), key=lambda sums: (sums.stat().st_mtime_ns, sums.parent.name))
    return [sums.parent.name for sums in whole]


def read(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`; raises UserError when it is not whole, or of another format."""
    data = dict(_checked_files(path))
    try:
        state = json.loads(data[STATE])
        if state["format"] != FORMAT:
            raise UserError(
                f"checkpoint {path} has format {state['format']}, but this version of nnabla-torus reads {FORMAT}; "
                "use the version that wrote it"
            )
        parameters = _arrays(data[PARAMETERS])
        trainable = frozenset(_marked_trainable(data[PARAMETERS]))
        return Checkpoint(state, parameters, trainable, _arrays(data[SOLVER]), _arrays(data[RANKS]))
    except (KeyError, ValueError, TypeError, OSError):
        raise _damaged(path, "its files are not what nnabla-torus writes") from None


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for name in names(folder)[:-keep]:
        shutil.rmtree(folder / name)


def _checked_files(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        lines = (path / SUMS).read_text(encoding="utf-8").splitlines()
        expected = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    except (OSError, UnicodeDecodeError):
        raise _damaged(path, f"{SUMS} cannot be read") from None
    for file in (STATE, PARAMETERS, SOLVER, RANKS):
        try:
            data = (path / file).read_bytes()
        except OSError as error:
            raise _damaged(path, f"{file}: {error.strerror}") from None
        if expected.get(file) != _sum(data):
            raise _damaged(path, f"{file} is not as it was written")
        yield file, data


def _damaged(path: Path, reason: str) -> UserError:
    others = ", ".join(name for name in names(path.parent) if name != path.name)
    remedy = f"write another one's name into {path.parent / LATEST}: {others}" if others else "train without --resume"
    return UserError(f"checkpoint {path} is damaged: {reason}; {remedy}")


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_to_disk(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _image(arrays: Arrays, attributes: Mapping[str, Mapping[str, object]] | None = None) -> bytes:
    """Return an HDF5 file of the arrays, made in memory.

    By h5py's lower interface, which takes a third of the time that training would have to share with it.
    """
    groups = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    groups.set_create_intermediate_group(True)
    plain = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plain.set_obj_track_times(False)  # equal arrays make equal files
    with h5py.File("image", "w", driver="core", backing_store=False) as file:
        for name, array in arrays.items():
            space = h5py.h5s.create_simple(array.shape) if array.shape else h5py.h5s.create(h5py.h5s.SCALAR)
            kind = h5py.h5t.py_create(array.dtype, logical=True)
            dataset = h5py.h5d.create(file.id, name.encode(), kind, space, plain, groups)
            dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, np.asarray(array, order="C"))
            h5py.Dataset(dataset).attrs.update((attributes or {}).get(name, {}))
        file.flush()
        image: bytes = file.id.get_file_image()
    return image


def _parameters_image(checkpoint: Checkpoint) -> bytes:
    """Return the file with the attributes that nnabla's loader asks for."""
    attributes = {
        name: {"index": index, "need_grad": name in checkpoint.trainable}
        for index, name in enumerate(checkpoint.parameters)
    }
    return _image(checkpoint.parameters, attributes)


def _datasets(image: bytes) -> Iterator[tuple[str, h5py.Dataset]]:
    with h5py.File(io.BytesIO(image), "r") as file:
        found: list[tuple[str, h5py.Dataset]] = []
        file.visititems(lambda name, item: found.append((name, item)) if isinstance(item, h5py.Dataset) else None)
        yield from found


def _arrays(image: bytes) -> dict[str, np.ndarray]:
    return {name: dataset[()] for name, dataset in _datasets(image)}


def _marked_trainable(image: bytes) -> list[str]:
    return [name for name, dataset in _datasets(image) if dataset.attrs["need_grad"]]
