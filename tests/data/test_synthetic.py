"""The drawn ImageNet: its layout, the same bytes for the same seed, and that classes differ in shape and texture."""

import hashlib
import io

import numpy as np
import pytest

from nnabla_torus.failure import UserError

pytest.importorskip("PIL", reason="Pillow is not installed (the extra `dali`)")
from PIL import Image

from nnabla_torus.data import synthetic


def digest(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_layout_sizes_and_the_same_bytes_for_the_same_seed(tmp_path):
    first = list(synthetic.write(tmp_path / "a", classes=3, per_class=4, val_per_class=2, seed=5))
    list(synthetic.write(tmp_path / "b", classes=3, per_class=4, val_per_class=2, seed=5))
    list(synthetic.write(tmp_path / "c", classes=3, per_class=4, val_per_class=2, seed=6))
    assert len(first) == 3 * 4 + 3 * 2
    assert sorted(path.name for path in (tmp_path / "a/train").iterdir()) == ["n90000000", "n90000001", "n90000002"]
    assert sorted(path.name for path in (tmp_path / "a/val").iterdir()) == ["n90000000", "n90000001", "n90000002"]
    assert len(list((tmp_path / "a/train/n90000001").glob("*.JPEG"))) == 4
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert not set(digest(tmp_path / "a").values()) & set(digest(tmp_path / "c").values())
    sizes = set()
    for path in first:
        with Image.open(path) as image:
            assert (image.format, image.mode) == ("JPEG", "RGB")
            sizes.add(image.size)
    assert len(sizes) > 10 and all(96 <= side <= 224 for size in sizes for side in size)


def test_more_of_a_class_leaves_its_first_images_as_they_are(tmp_path):
    list(synthetic.write(tmp_path / "few", 2, per_class=2, val_per_class=1, seed=1))
    list(synthetic.write(tmp_path / "more", 2, per_class=3, val_per_class=1, seed=1))
    few, more = digest(tmp_path / "few"), digest(tmp_path / "more")
    assert few.items() <= more.items()


@pytest.mark.parametrize("classes", [2, 7, 20, synthetic.MOST_CLASSES])
def test_every_class_has_a_shape_and_texture_of_its_own(classes):
    pairs = {synthetic.look(label, classes) for label in range(classes)}
    assert len(pairs) == classes
    shapes, textures = zip(*pairs)
    if classes >= 4:  # neither alone tells the class
        assert len(set(shapes)) < classes and len(set(textures)) < classes


def test_every_shape_and_texture_can_be_drawn():
    for label in range(synthetic.MOST_CLASSES):
        random = np.random.default_rng(label)
        pixels = synthetic.draw(label, synthetic.MOST_CLASSES, random)
        assert pixels.dtype == np.uint8 and pixels.std() > 5
        Image.open(io.BytesIO(synthetic.encode(pixels))).load()


@pytest.mark.parametrize("classes", [1, synthetic.MOST_CLASSES + 1])
def test_a_number_of_classes_that_cannot_be_drawn_is_refused(tmp_path, classes):
    with pytest.raises(UserError, match=f"{classes} classes.*2 to 80"):
        next(synthetic.write(tmp_path / "out", classes, 1, 1, 0))


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(UserError, match="not empty"):
        next(synthetic.write(tmp_path, 2, 1, 1, 0))
