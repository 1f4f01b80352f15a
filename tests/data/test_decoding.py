"""Decoded pixels, against Pillow and numpy, and what happens to files that cannot be decoded."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from nnabla_torus.data.augmentation import Augmentation, Crop
from nnabla_torus.data.dali import Decoding
from nnabla_torus.data.decoding import Decoder, Piece
from nnabla_torus.data.index import Index
from nnabla_torus.data.scan import open_index
from nnabla_torus.failure import UserError
from tests.data.images import encode, make_split

pytest.importorskip("nvidia.dali", reason="DALI is not installed: tools/setup.sh dali")
from PIL import Image  # comes with the same extra

PLAIN = {"mean": (0.0, 0.0, 0.0), "deviation": (1.0, 1.0, 1.0), "threads": 1}
SAME_SIZE = Augmentation()  # on an image of the network's size: the image itself


def pieces(files: list[int], size: int = 3) -> Iterator[Piece]:
    for start in range(0, len(files), size):
        part = np.array(files[start : start + size])
        yield Piece(part, np.zeros_like(part), part)


def decode(
    index: Index, files: list[int], augmentation: Augmentation | None, seed: int = 0, **how: object
) -> np.ndarray:
    decoding = Decoding(**{**PLAIN, "size": 32, "piece": 3, **how})  # type: ignore[arg-type]
    decoder = Decoder(index, decoding, pieces(files), augmentation, seed)
    images = [images.copy() for images, _ in decoder]
    decoder.close()
    return np.concatenate(images)


def one_class(root: Path, contents: dict[str, bytes]) -> Index:
    folder = root / "train/n01"
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return open_index(root, "train")


def pixels(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(np.float32)


@pytest.mark.parametrize(
    "content",
    [
        encode(32, 32),
        encode(32, 32, mode="L"),
        encode(32, 32, mode="CMYK"),
        encode(32, 32, kind="PNG"),
        encode(32, 32, kind="PNG", mode="P"),
        encode(32, 32, progressive=True),
    ],
    ids=["jpeg", "grey", "cmyk", "png", "palette", "progressive"],
)
def test_every_kind_decodes_to_pillows_pixels(tmp_path: Path, content: bytes) -> None:
    index = one_class(tmp_path, {"ein bild ü.JPEG": content})
    (image,) = decode(index, [0], SAME_SIZE)
    assert np.abs(image.transpose(1, 2, 0) - pixels(content)).max() <= 2


def test_an_image_with_exif_orientation_is_left_as_it_is(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encode(40, 60, exif=exif)
    index = one_class(tmp_path, {"a.jpg": turned})
    (image,) = decode(index, [0], SAME_SIZE, size=40)
    assert np.abs(image.transpose(1, 2, 0) - pixels(turned)[:, 10:50]).max() <= 2
    (tested,) = decode(index, [0], None, size=40, test_resize=40)
    assert np.abs(tested.transpose(1, 2, 0) - pixels(turned)[:, 10:50]).max() <= 2


def test_region_and_mirror_are_the_ones_drawn(tmp_path: Path) -> None:
    content = encode(90, 70)
    index = one_class(tmp_path, {"a.jpg": content})
    found = set()
    for seed in range(12):  # a crop of the network's size, not resized: pixels must be found again in the image
        (image,) = decode(index, [0], Augmentation(resizing=(70, 70), flipping=0.5), seed=seed)
        whole = pixels(content)
        hits = [
            (y, x, mirrored)
            for y in range(90 - 31)
            for x in range(70 - 31)
            for mirrored in (False, True)
            if np.abs(image.transpose(1, 2, 0)[:, :: -1 if mirrored else 1] - whole[y : y + 32, x : x + 32]).max() <= 3
        ]
        assert len(hits) == 1
        found.add(hits[0])
    assert len({hit[:2] for hit in found}) > 8 and {hit[2] for hit in found} == {False, True}


def test_padding_shifts_over_grey(tmp_path: Path) -> None:
    content = encode(32, 32)
    index = one_class(tmp_path, {"a.jpg": content})
    mean = (90.0, 120.0, 150.0)
    padded = np.pad(pixels(content), ((3, 3), (3, 3), (0, 0)), constant_values=120.0)
    for seed in range(6):
        (image,) = decode(index, [0], Augmentation(padding=3), seed=seed, mean=mean, deviation=(1.0, 1.0, 1.0))
        shown = image.transpose(1, 2, 0) + np.array(mean)
        differences = [np.abs(shown - padded[y : y + 32, x : x + 32]).max() for y in range(7) for x in range(7)]
        assert min(differences) <= 2


def test_scaling_by_two_shows_the_middle_half(tmp_path: Path) -> None:
    content = encode(32, 32)
    (zoomed,) = decode(one_class(tmp_path, {"a.jpg": content}), [0], Augmentation(scaling=(2.0, 2.0)))
    middle = Image.open(io.BytesIO(content)).resize((32, 32), Image.Resampling.BILINEAR, box=(8, 8, 24, 24))
    inside = slice(1, -1)  # at the border Pillow does not look beyond the box
    assert np.abs(zoomed.transpose(1, 2, 0) - np.asarray(middle))[inside, inside].max() <= 3


def test_rotation_turns_about_the_centre(tmp_path: Path) -> None:
    content = encode(32, 32)
    index = one_class(tmp_path, {"a.jpg": content})
    image = Image.open(io.BytesIO(content))
    inner = np.hypot(*(np.mgrid[:32, :32] - 15.5)) < 15
    turned = [np.asarray(image.rotate(angle, Image.Resampling.BILINEAR))[inner] for angle in range(-180, 180)]
    angles = []
    for seed in range(5):
        (shown,) = decode(index, [0], Augmentation(rotation=180.0), seed=seed)
        differences = [np.abs(shown.transpose(1, 2, 0)[inner] - other).mean() for other in turned]
        assert min(differences) < 3 < np.median(differences)
        angles.append(int(np.argmin(differences)))
    assert np.ptp(angles) > 90


def test_brightness_contrast_and_noise(tmp_path: Path) -> None:
    content = encode(32, 32)
    index = one_class(tmp_path, {f"{n}.jpg": content for n in range(6)})
    files = list(range(6))
    plain = decode(index, files, SAME_SIZE)
    noisy = decode(index, files, Augmentation(noise=4.0)) - plain
    inside = (plain > 20) & (plain < 235)
    assert abs(noisy[inside].std() - 4) < 0.3
    assert np.abs(noisy[0] - noisy[1]).max() > 1  # every sample has its own cut
    bright = decode(index, files, Augmentation(brightness=0.5))
    factors = [np.median(b[(p > 20) & (b < 250)] / p[(p > 20) & (b < 250)]) for b, p in zip(bright, plain)]
    assert 0.49 < min(factors) < 0.95 and 1.05 < max(factors) < 1.51
    assert bright.min() >= 0 and bright.max() <= 255


def test_layouts_and_types(tmp_path: Path) -> None:
    index = one_class(tmp_path, {"a.jpg": encode(50, 60)})
    how = {"mean": (10.0, 20.0, 30.0), "deviation": (2.0, 4.0, 5.0), "test_resize": 40}
    plain = decode(index, [0], None, test_resize=40)
    expected = (plain - np.array([10, 20, 30])[:, None, None]) / np.array([2, 4, 5])[:, None, None]
    channels_first = decode(index, [0], None, **how)
    assert channels_first.dtype == np.float32 and channels_first.shape == (1, 3, 32, 32)
    assert np.allclose(channels_first, expected, atol=1e-3)
    channels_last = decode(index, [0], None, layout="NHWC", dtype="half", **how)
    assert channels_last.dtype == np.float16 and channels_last.shape == (1, 32, 32, 4)
    assert np.allclose(channels_last[..., :3], expected.transpose(0, 2, 3, 1), atol=0.1)
    assert not channels_last[..., 3].any()
    train = decode(index, [0], Augmentation(random_resized_crop=Crop()), layout="NHWC", dtype="half")
    assert train.shape == (1, 32, 32, 4) and not train[..., 3].any()


def test_evaluation_resizes_and_cuts_the_centre(tmp_path: Path) -> None:
    content = encode(80, 120)
    index = one_class(tmp_path, {"a.jpg": content})
    (image,) = decode(index, [0], None, size=32, test_resize=40)
    resized = Image.open(io.BytesIO(content)).resize((60, 40), Image.Resampling.BILINEAR)
    expected = np.asarray(resized).astype(np.float32)[4:36, 14:46]
    assert np.abs(image.transpose(1, 2, 0) - expected).mean() < 2


def bad_files() -> dict[str, bytes]:
    sound = encode(64, 64, quality=95)
    return {
        "zero bytes": b"",
        "not an image": b"<html>not found</html>" * 9,
        "neither JPEG nor PNG": encode(32, 32, kind="GIF", mode="P"),
        "truncated": sound[: len(sound) * 2 // 3],
    }


@pytest.mark.parametrize("fault", ["zero bytes", "not an image", "neither JPEG nor PNG", "truncated"])
def test_a_bad_file_stops_with_its_path_and_fault(tmp_path: Path, fault: str) -> None:
    contents = {f"{n}.jpg": encode(40, 40, seed=n) for n in range(8)}
    index = one_class(tmp_path, {**contents, "5.jpg": bad_files()[fault]})
    with pytest.raises(UserError, match=rf"train/n01/5\.jpg cannot be decoded: {fault}; .*on_error=replace"):
        decode(index, list(range(8)), SAME_SIZE)


def test_a_file_that_went_away(tmp_path: Path) -> None:
    index = one_class(tmp_path, {f"{n}.jpg": encode(40, 40) for n in range(8)})
    (tmp_path / "train/n01/6.jpg").unlink()
    with pytest.raises(UserError, match=r"6\.jpg cannot be decoded: No such file or directory"):
        decode(index, list(range(8)), SAME_SIZE)


def test_a_file_that_changed_its_size(tmp_path: Path) -> None:
    index = one_class(tmp_path, {f"{n}.jpg": encode(80, 80) for n in range(8)})
    (tmp_path / "train/n01/1.jpg").write_bytes(encode(20, 20))
    with pytest.raises(UserError, match=r"1\.jpg cannot be decoded: not the file that was indexed"):
        decode(index, list(range(8)), SAME_SIZE)


def test_bad_files_are_replaced_by_the_next_and_counted(tmp_path: Path) -> None:
    contents = {f"{n}.jpg": encode(32, 32, seed=n) for n in range(9)}
    bad = bad_files()
    broken = {
        "1.jpg": bad["truncated"],
        "4.jpg": bad["zero bytes"],
        "5.jpg": bad["truncated"],
        "8.jpg": bad["truncated"],
    }
    index = one_class(tmp_path, {**contents, **broken})
    files = [0, 1, 2, 3, 4, 5, 6, 7, 8, 1]
    replaced: Counter[str] = Counter()
    decoding = Decoding(size=32, piece=3, on_error="replace", **PLAIN)  # type: ignore[arg-type]
    decoder = Decoder(index, decoding, pieces(files), SAME_SIZE, replaced=replaced)
    decoded = np.concatenate([images.copy() for images, _ in decoder])
    taken = [0, 2, 2, 3, 6, 6, 6, 7, 0, 2]
    assert len(decoded) == len(taken)
    for image, file in zip(decoded, taken):
        assert np.abs(image.transpose(1, 2, 0) - pixels(contents[f"{file}.jpg"])).max() <= 2
    folder = tmp_path / "train/n01"
    assert replaced == {
        str(folder / "1.jpg"): 2,
        str(folder / "4.jpg"): 1,
        str(folder / "5.jpg"): 2,
        str(folder / "8.jpg"): 1,
    }


def test_labels_go_with_the_replacement(tmp_path: Path) -> None:
    make_split(tmp_path / "train", {"n01": 2, "n02": 2})
    (tmp_path / "train/n01/n01_1.JPEG").write_bytes(b"")
    index = open_index(tmp_path, "train")
    decoder = Decoder(index, Decoding(size=32, piece=3, threads=1, on_error="replace"), pieces([0, 1, 2, 3]), SAME_SIZE)
    assert np.concatenate([labels for _, labels in decoder]).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("fault", ["zero bytes", "truncated"])
def test_nothing_that_decodes(tmp_path: Path, fault: str) -> None:
    index = one_class(tmp_path, {f"{n}.jpg": bad_files()[fault] for n in range(3)})
    with pytest.raises(UserError, match="none of the 3 images"):
        decode(index, [0, 1, 2], SAME_SIZE, on_error="replace", size=64)


def test_what_other_sets_replaced_does_not_matter(tmp_path: Path) -> None:
    index = one_class(tmp_path, {"0.jpg": b"", "1.jpg": encode(32, 32)})
    replaced = Counter({"a": 1, "b": 1, "c": 1})
    decoding = Decoding(size=32, piece=3, on_error="replace", threads=1)
    decoder = Decoder(index, decoding, pieces([0, 1]), SAME_SIZE, replaced=replaced)
    assert [labels.tolist() for _, labels in decoder] == [[0, 0]]
    assert replaced == {"a": 1, "b": 1, "c": 1, str(tmp_path / "train/n01/0.jpg"): 1}


def test_the_only_image_cannot_be_replaced(tmp_path: Path) -> None:
    index = one_class(tmp_path, {"0.jpg": bad_files()["truncated"]})
    with pytest.raises(UserError, match="none of the 1 images"):
        decode(index, [0], SAME_SIZE, on_error="replace", size=64)
    with pytest.raises(UserError, match=r"0\.jpg cannot be decoded: truncated"):
        decode(index, [0], SAME_SIZE, size=64)


def test_shards_decode_to_the_same_pixels_and_name_their_bad_image(tmp_path: Path) -> None:
    from nnabla_torus.data.shards import pack

    make_split(tmp_path / "train", {"n01": 3, "n02": 4})
    folders = open_index(tmp_path, "train")
    list(pack(folders, range(7), tmp_path / "packed/train", "train", per_shard=4))
    shards = open_index(tmp_path / "packed", "train")
    augmentation = Augmentation(random_resized_crop=Crop(), flipping=0.5)
    order = [6, 2, 0, 5]
    assert np.array_equal(decode(shards, order, augmentation), decode(folders, order, augmentation))
    shard = tmp_path / "packed/train/train-000000.tar"
    content = bytearray(shard.read_bytes())
    start = int(shards.offsets[2])
    content[start : start + int(shards.lengths[2])] = bytes(int(shards.lengths[2]))
    shard.write_bytes(content)
    with pytest.raises(UserError, match=r"train-000000\.tar:n01/00000002\.jpg cannot be decoded: not an image"):
        decode(shards, order, augmentation)
