"""The data source: which samples a rank gets and with which pixels, whatever the ranks, batches and interruptions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from nnabla_torus.data.augmentation import Augmentation, Crop
from nnabla_torus.data.dali import Decoding
from nnabla_torus.data.imagenet import ImageNet
from nnabla_torus.data.scan import open_index
from nnabla_torus.data.source import Batch
from nnabla_torus.data.stream import SampleStream
from nnabla_torus.failure import UserError
from tests.data.images import encode, make_split

pytest.importorskip("nvidia.dali", reason="DALI is not installed: tools/setup.sh dali")

CLASSES = {"n01": 4, "n02": 6, "n03": 3}
SAMPLES = 13
ALL = Augmentation(
    random_resized_crop=Crop(),
    flipping=0.5,
    padding=2,
    scaling=(0.9, 1.1),
    rotation=10,
    brightness=0.3,
    contrast=0.3,
    noise=4,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("imagenet")
    make_split(root / "train", CLASSES)
    make_split(root / "val", {"n01": 2, "n02": 1, "n03": 4})
    return root


def open_source(root: Path, augmentation: Augmentation = ALL, **how: object) -> ImageNet:
    decoding = Decoding(**{"size": 24, "test_resize": 28, "threads": 1, "piece": 4, **how})  # type: ignore[arg-type]
    return ImageNet(open_index(root, "train"), open_index(root, "val"), augmentation, decoding)


def read(
    source: ImageNet, stops: list[int], rank: int = 0, size: int = 1, start: int = 0, seed: int = 5
) -> list[Batch]:
    reader = source.train(SampleStream(source.train_samples, seed, rank, size), start)
    batches = copied(reader.read(stop) for stop in stops)
    reader.close()
    return batches


def copied(batches: Iterable[Batch]) -> list[Batch]:
    """Keep batches: a source uses their arrays again."""
    return [Batch(batch.images.copy(), batch.labels.copy()) for batch in batches]


def joined(batches: list[Batch]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([batch.images for batch in batches]), np.concatenate([batch.labels for batch in batches])


@pytest.fixture(scope="module")
def two_epochs(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Every position of the first two epochs, in order, as one rank sees them in one batch."""
    return joined(read(open_source(root), [2 * SAMPLES]))


def test_shapes(root: Path) -> None:
    source = open_source(root)
    assert (source.classes, source.train_samples, source.test_samples) == (3, 13, 7)
    assert source.image_shape == (3, 24, 24)
    (batch,) = read(source, [5])
    assert batch.images.shape == (5, 3, 24, 24) and batch.images.dtype == np.float32
    assert batch.labels.shape == (5,) and batch.labels.dtype == np.int32


def test_an_epoch_has_every_image_once_with_its_label(root: Path) -> None:
    plain = open_source(root, Augmentation())
    images, labels = joined(read(plain, [SAMPLES, 2 * SAMPLES]))
    first, second = images[:SAMPLES], images[SAMPLES:]
    assert len(np.unique(first.reshape(SAMPLES, -1), axis=0)) == SAMPLES
    # without augmentation an image is the same in both epochs, and so is its label
    for image, label in zip(second, labels[SAMPLES:]):
        (same,) = np.flatnonzero((first == image).all(axis=(1, 2, 3)))
        assert labels[same] == label
    assert np.bincount(labels[:SAMPLES]).tolist() == list(CLASSES.values())


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 4, 7, 16])
def test_every_rank_gets_its_positions_with_the_same_pixels(
    root: Path, two_epochs: tuple[np.ndarray, np.ndarray], size: int, batch: int
) -> None:
    stops = [*range(batch, 2 * SAMPLES, batch), 2 * SAMPLES]
    source = open_source(root)
    seen = np.zeros(2 * SAMPLES, int)
    for rank in range(size):
        images, labels = joined(read(source, stops, rank, size))
        positions = np.arange(rank, 2 * SAMPLES, size)
        assert np.array_equal(images, two_epochs[0][positions])
        assert np.array_equal(labels, two_epochs[1][positions])
        seen[positions] += 1
    assert np.all(seen == 1)


def test_the_same_pixels_on_one_rank_and_on_four_in_each_batch(
    root: Path, two_epochs: tuple[np.ndarray, np.ndarray]
) -> None:
    source = open_source(root, piece=3)
    parts = [read(source, [6, 12, 18], rank, 4) for rank in range(4)]
    for step, start in enumerate((0, 6, 12)):
        together = np.concatenate([part[step].images for part in parts])
        expected = two_epochs[0][start : start + 6]
        assert sorted(map(np.sum, together)) == sorted(map(np.sum, expected))
        assert {len(part[step].labels) for part in parts} == {1, 2}


def test_a_resumed_epoch_goes_on_at_the_right_sample(root: Path, two_epochs: tuple[np.ndarray, np.ndarray]) -> None:
    for start in (1, 9, SAMPLES, 20):
        images, labels = joined(read(open_source(root), [start + 2, start + 6], start=start))
        assert np.array_equal(images, two_epochs[0][start : start + 6])
        assert np.array_equal(labels, two_epochs[1][start : start + 6])
    images, _ = joined(
        read(open_source(root), [16, 22], rank=1, size=3, start=10)
    )  # stopped on another number of ranks
    assert np.array_equal(images, two_epochs[0][np.arange(10, 22)[np.arange(10, 22) % 3 == 1]])


def test_a_batch_size_that_changes_in_mid_epoch(root: Path, two_epochs: tuple[np.ndarray, np.ndarray]) -> None:
    batches = read(open_source(root), [2, 4, 9, 9, 20, 26])
    assert [len(batch.labels) for batch in batches] == [2, 2, 5, 0, 11, 6]
    assert np.array_equal(joined(batches)[0], two_epochs[0])


def test_epochs_and_seeds_draw_anew(root: Path, two_epochs: tuple[np.ndarray, np.ndarray]) -> None:
    images = two_epochs[0]
    again, _ = joined(read(open_source(root), [SAMPLES]))
    assert np.array_equal(again, images[:SAMPLES])
    other, _ = joined(read(open_source(root), [SAMPLES], seed=6))
    both = np.concatenate([images, other]).reshape(3 * SAMPLES, -1)
    assert len(np.unique(both, axis=0)) == 3 * SAMPLES


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_test_set_is_seen_once(root: Path, batch: int, ranks: int) -> None:
    source = open_source(root)
    whole = next(source.test(0, 7, 7))
    assert whole.labels.tolist() == [0, 0, 1, 2, 2, 2, 2]
    edges = [7 * rank // ranks for rank in range(ranks + 1)]
    parts = [part for start, stop in zip(edges, edges[1:]) for part in copied(source.test(start, stop, batch))]
    assert max(len(part.labels) for part in parts) <= batch
    images, labels = joined(parts)
    assert np.array_equal(images, whole.images) and np.array_equal(labels, whole.labels)


def test_one_image_on_three_ranks(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 1})
    make_split(tmp_path / "val", {"n01": 1})
    source = open_source(tmp_path)
    parts = [read(source, [2, 4, 5], rank, 3) for rank in range(3)]
    assert [[len(batch.labels) for batch in part] for part in parts] == [[1, 1, 0], [1, 0, 1], [0, 1, 0]]
    alone = joined(read(source, [5]))[0]  # five epochs of the one image
    assert len(np.unique(alone.reshape(5, -1), axis=0)) == 5
    assert np.array_equal(joined(parts[1])[0], alone[[1, 4]])
    assert [len(part.labels) for part in source.test(0, 0, 4)] == []


def test_bad_files_are_counted(root: Path, tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 3})
    make_split(tmp_path / "val", {"n01": 3})
    (tmp_path / "train/n01/n01_1.JPEG").write_bytes(b"")
    (tmp_path / "val/n01/n01_0.JPEG").write_bytes(b"")
    source = open_source(tmp_path, on_error="replace", piece=2, prefetch=1)
    read(source, [3])
    list(source.test(0, 3, 3))
    assert source.replaced[str(tmp_path / "val/n01/n01_0.JPEG")] == 1
    assert source.replaced[str(tmp_path / "train/n01/n01_1.JPEG")] >= 1


@pytest.mark.parametrize(
    ("val", "message"),
    [
        ({"n01": 1, "n02": 1}, "3 training classes and .* 2 test classes; .* but n03 is in the training set only"),
        ({"n01": 1, "n02": 1, "n03": 1, "n04": 1}, "3 training .* 4 test classes; .* but n04 is in the test set only"),
    ],
)
def test_other_classes_in_the_test_set(root: Path, tmp_path: Path, val: dict[str, int], message: str) -> None:
    make_split(tmp_path / "val", val)
    with pytest.raises(UserError, match=message):
        ImageNet(open_index(root, "train"), open_index(tmp_path, "val"), Augmentation(), Decoding())


def test_an_empty_test_class_keeps_its_number(root: Path, tmp_path: Path) -> None:
    make_split(tmp_path / "val", {"n01": 1, "n02": 0, "n03": 1})
    source = ImageNet(
        open_index(root, "train"), open_index(tmp_path, "val"), Augmentation(), Decoding(size=8, test_resize=8)
    )
    assert next(source.test(0, 2, 2)).labels.tolist() == [0, 2]


def test_stray_files_spaces_and_unicode(tmp_path: Path) -> None:
    for split in ("train", "val"):
        folder = tmp_path / f"ordner ü/{split}/n 01"
        folder.mkdir(parents=True)
        (folder / "bild né 1.JPEG").write_bytes(encode(30, 30))
        (folder / "Thumbs.db").write_bytes(b"stray")
        (folder.parent / ".DS_Store").write_bytes(b"stray")
    source = open_source(tmp_path / "ordner ü")
    assert (source.train_samples, source.test_samples) == (1, 1)
    assert read(source, [3])[0].labels.tolist() == [0, 0, 0]
