"""`nnabla-torus prepare`: image files drawn, indexed, checked, mended and packed before training reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

import click

from nnabla_torus.failure import EXIT_BUG, UserError

if TYPE_CHECKING:
    from nnabla_torus.data.index import Index
    from nnabla_torus.data.verify import Found

T = TypeVar("T")
FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
NONE = "none"


@click.group()
def prepare() -> None:
    """Draw, index, check, mend and pack image files."""


def of_a_data_set(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what tells where a data set's two splits and their index lie."""
    for decorate in (
        click.option("--index", "cache", type=FOLDER, help="Folder of the indexes.  [default: ROOT/.nnabla_torus]"),
        click.option("--val-labels", type=FILE, help="Labels of a validation folder without class folders."),
        click.option("--val", default="val", show_default=True, help=f"Validation split, '{NONE}' without one."),
        click.option("--train", default="train", show_default=True, help="Folder, or pattern of shards, below ROOT."),
        click.argument("root", type=FOLDER),
    ):
        command = decorate(command)
    return command


@prepare.command()
@click.argument("out", type=FOLDER)
@click.option("--classes", type=int, default=20, show_default=True, help="Pairs of a shape and a texture.")
@click.option("--per-class", type=click.IntRange(1), default=100, show_default=True, help="Training images of each.")
@click.option("--val-per-class", type=click.IntRange(1), default=20, show_default=True, help="Validation images.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The same seed, the same bytes.")
def synthetic(out: Path, classes: int, per_class: int, val_per_class: int, seed: int) -> None:
    """Draw a small ImageNet into the new folder OUT: JPEGs of varied sizes, classes told apart by shape and texture."""
    _need_pillow()
    from nnabla_torus.data.synthetic import write

    total = classes * (per_class + val_per_class)
    for _ in _progress(write(out, classes, per_class, val_per_class, seed), total, "drawing images"):
        pass
    click.echo(f"{total} images of {classes} classes in {out}; data.root: {out} trains on them")


@prepare.command()
@of_a_data_set
def index(root: Path, train: str, val: str, val_labels: Optional[Path], cache: Optional[Path]) -> None:
    """Index the data set in ROOT, as the first training run would; on every host where they share no disk."""
    for name, found in _open(root, train, val, val_labels, cache):
        click.echo(_summary(name, found))


@prepare.command()
@of_a_data_set
@click.option("--json", "json_file", type=FILE, help="Write faults and counts per class here.")
def verify(
    root: Path, train: str, val: str, val_labels: Optional[Path], cache: Optional[Path], json_file: Optional[Path]
) -> int:
    """Decode every file in ROOT and list what is wrong: PATH: FAULT.

    Ends with status 1 when something would stop training.
    """
    _need_pillow()
    if json_file and not json_file.parent.is_dir():
        raise UserError(f"--json {json_file}: there is no folder {json_file.parent}; make it first")
    report: dict[str, Any] = {"root": str(root), "splits": {}}
    stopping = 0
    for name, found, faults in _verified(root, train, val, val_labels, cache):
        for fault in faults:
            click.echo(f"{fault.path}: {fault.fault}" + ("" if fault.stops else " (decodes)"))
        stops = sum(fault.stops for fault in faults)
        stopping += stops
        click.echo(f"{_summary(name, found)}; {len(faults)} with a fault, {stops} of which stop training")
        report["splits"][name] = {
            "images": len(found),
            "notes": found.notes,
            "faults": [{"path": fault.path, "fault": fault.fault, "stops": fault.stops} for fault in faults],
            "classes": dict(zip(found.classes, found.counts().tolist())),
        }
    report["stopping"] = stopping
    if json_file:
        json_file.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return EXIT_BUG if stopping else 0


@prepare.command()
@of_a_data_set
@click.option("--out", type=FOLDER, required=True, help="Where mended copies go, as they lie below ROOT.")
def repair(root: Path, train: str, val: str, val_labels: Optional[Path], cache: Optional[Path], out: Path) -> int:
    """Check every file in ROOT and write mended copies into OUT where that is possible; ROOT stays as it is.

    Ends with status 1 when a file that stops training cannot be mended.
    """
    _need_pillow()
    from nnabla_torus.data.repair import repair as mend_all

    if out.resolve() == root.resolve():
        raise UserError(f"--out {out} is the data itself; name another folder, copies must not overwrite originals")
    left = 0
    for _, found, faults in _verified(root, train, val, val_labels, cache):
        for fault, path in mend_all(found, faults, out):
            click.echo(f"{fault.path}: {fault.fault}, " + (f"mended in {path}" if path else "cannot be mended"))
            left += fault.stops and path is None
    return EXIT_BUG if left else 0


@prepare.command()
@of_a_data_set
@click.argument("out", type=FOLDER)
@click.option("--per-shard", type=click.IntRange(1), default=1000, show_default=True, help="Images in a shard.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the order of training images.")
def pack(
    root: Path,
    train: str,
    val: str,
    val_labels: Optional[Path],
    cache: Optional[Path],
    out: Path,
    per_shard: int,
    seed: int,
) -> None:
    """Pack ROOT into uncompressed tar shards in OUT/train and OUT/val, with their index.

    Training images are shuffled, for readers that go through a shard from its start; ours does not mind.
    """
    from nnabla_torus.data.scan import open_index
    from nnabla_torus.data.shards import pack as write
    from nnabla_torus.data.stream import SampleStream

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; name a new folder")
    for name, found in _open(root, train, val, val_labels, cache):
        order = SampleStream(len(found), seed).order(0) if name == "train" else range(len(found))
        shards = write(found, order, out / name, name, per_shard)
        try:
            for _ in _progress(shards, -(-len(found) // per_shard), f"packing {name}"):
                pass
        except OSError as error:
            raise UserError(f"packing into {out / name} stopped: {error}; 'prepare verify' finds bad files") from None
        click.echo(_summary(name, open_index(out, name)))


def _open(
    root: Path, train: str, val: str, val_labels: Optional[Path], cache: Optional[Path]
) -> Iterator[tuple[str, Index]]:
    """Yield each split's name and index; raises UserError where the two splits do not belong together."""
    from nnabla_torus.data.imagenet import check_classes
    from nnabla_torus.data.scan import open_index

    def indexing(containers: Iterable[str]) -> Iterable[str]:
        known = list(containers)
        return _progress(known, len(known), "indexing")

    training = open_index(root, train, cache=cache, progress=indexing)
    for note in training.notes:
        click.echo(f"note: {note}", err=True)
    yield "train", training
    if val == NONE:
        return
    validation = open_index(root, val, val_labels, training.classes, cache, progress=indexing)
    for note in validation.notes:
        click.echo(f"note: {note}", err=True)
    check_classes(training, validation)
    yield "val", validation


def _verified(*where: Any) -> Iterator[tuple[str, Index, list[Found]]]:
    from nnabla_torus.data.verify import CHUNK
    from nnabla_torus.data.verify import verify as check

    for name, found in _open(*where):
        yield name, found, check(found, partial(_progress, what=f"checking {name}", each=CHUNK))


def _summary(name: str, found: Index) -> str:
    counts = found.counts()
    least, most = int(counts.argmin()), int(counts.argmax())
    return (
        f"{name}: {len(found)} images of {len(counts)} classes, {counts[least]} ({found.classes[least]}) to "
        f"{counts[most]} ({found.classes[most]}) each"
    )


def _progress(items: Iterable[T], total: int, what: str, each: int = 1) -> Iterator[T]:
    """Pass items on with a bar on a terminal, elsewhere with a line for each tenth; an item counts for `each`."""
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, total=total, desc=what, unit_scale=each)
        return
    for done, item in enumerate(items, 1):
        yield item
        if done * 10 // total > (done - 1) * 10 // total:
            click.echo(f"{what}: {done * 100 // total} %", err=True)


def _need_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise UserError("drawing, checking and mending images needs Pillow; pip install 'nnabla-torus[dali]'") from None
