"""Times the reading of training images: ours, DALI's own reader, a loader with Pillow; and an index of 100,000 files.

    python benchmarks/data.py [--threads 2] [--json FILE]

The images are drawn, of ImageNet's usual size (about 500 x 375, 110 KB), and lie in the page cache: decoding is what is
timed, not a disk. All loaders crop at random, resize to 224 x 224, flip and normalise to float32 NCHW; they take turns
in one run, and the ratio of each turn counts. The batches are those of training: arrays that can be read.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from nnabla_torus.data.augmentation import IMAGENET_DEVIATION, IMAGENET_MEAN, Augmentation, Crop
from nnabla_torus.data.dali import Decoding
from nnabla_torus.data.imagenet import ImageNet
from nnabla_torus.data.scan import open_index
from nnabla_torus.data.stream import SampleStream

SIZE = 224
BATCH = 64
AUGMENTATION = Augmentation(random_resized_crop=Crop(), flipping=0.5)


def draw(seed: int) -> bytes:
    """Return a JPEG with the size and about the amount of detail of a photograph."""
    random = np.random.default_rng(seed)
    height, width = (375, 500) if seed % 4 else (500, 375)
    layers = [
        np.asarray(
            Image.fromarray(random.normal(0, 1, (height // scale + 2, width // scale + 2)).astype(np.float32)).resize(
                (width, height), Image.Resampling.BICUBIC
            )
        )
        * amplitude
        for scale, amplitude in ((100, 40), (25, 20), (6, 12), (2, 8))
        for _ in range(3)
    ]
    pixels = 120 + np.stack([sum(layers[channel::3]) for channel in range(3)], axis=-1)
    encoded = io.BytesIO()
    Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(encoded, "JPEG", quality=95)
    return encoded.getvalue()


def make_set(root: Path, classes: int, per_class: int, contents: list[bytes]) -> None:
    """Write a training and a validation set; files beyond the first of each content are hard links to it."""
    originals = []
    for number, content in enumerate(contents):
        path = root / f"original-{number}"
        path.write_bytes(content)
        originals.append(path)
    for split, count in (("train", per_class), ("val", 1)):
        for label in range(classes):
            folder = root / split / f"n{label:08d}"
            folder.mkdir(parents=True)
            for number in range(count):
                os.link(originals[(label * count + number) % len(originals)], folder / f"{folder.name}_{number}.JPEG")


def open_source(root: Path, threads: int, build: bool = True) -> ImageNet:
    """Return our source."""
    train, test = (open_index(root, split, build=build) for split in ("train", "val"))
    return ImageNet(train, test, AUGMENTATION, Decoding(size=SIZE, threads=threads))


def ours(root: Path, threads: int, images: int) -> Iterator[int]:
    """Yield the size of each batch that our source gives."""
    source = open_source(root, threads)
    reader = source.train(SampleStream(source.train_samples, seed=1), 0)
    for stop in range(BATCH, images + 1, BATCH):
        yield len(reader.read(stop).labels)
    reader.close()


def dali_reader(root: Path, threads: int, images: int) -> Iterator[int]:
    """Yield the size of each batch of DALI's own reader, with its own random numbers and the same operators."""
    from nvidia.dali import Pipeline, fn, types

    pipeline = Pipeline(batch_size=BATCH, num_threads=threads, device_id=None, prefetch_queue_depth=2, seed=1)
    with pipeline:
        encoded, labels = fn.readers.file(file_root=str(root / "train"), random_shuffle=True)
        cropped = fn.decoders.image_random_crop(
            encoded, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3], adjust_orientation=False
        )
        resized = fn.resize(cropped, size=[SIZE, SIZE], interp_type=types.INTERP_TRIANGULAR)
        normalized = fn.crop_mirror_normalize(
            resized,
            mirror=fn.random.coin_flip(),
            mean=list(IMAGENET_MEAN),
            std=list(IMAGENET_DEVIATION),
            output_layout="CHW",
        )
        pipeline.set_outputs(normalized, labels)
    pipeline.build()
    for _ in range(images // BATCH):
        images, _ = pipeline.run()
        yield len(np.asarray(images.as_tensor()))


def pillow_image(path: Path, seed: int) -> np.ndarray:
    """Return one image as a loader with Pillow prepares it."""
    random = np.random.default_rng(seed)
    with Image.open(path) as image:
        width, height = image.size
        for _ in range(10):
            area = random.uniform(0.08, 1.0) * width * height
            aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round(np.sqrt(area * aspect)), round(np.sqrt(area / aspect))
            if w <= width and h <= height:
                break
        else:
            w = h = min(width, height)
        x, y = random.integers(0, width - w + 1), random.integers(0, height - h + 1)
        resized = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    pixels = np.asarray(resized, np.float32)
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    normalized = (pixels - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_DEVIATION)
    return np.ascontiguousarray(normalized.transpose(2, 0, 1))


def pillow_images(paths: list[Path]) -> int:
    """Prepare images one after the other, as one worker does."""
    return len(np.stack([pillow_image(path, seed) for seed, path in enumerate(paths)]))


def pillow_rate(root: Path, workers: int, images: int) -> float:
    """Return images/s of as many Pillow workers as the others have threads, which hand nothing over."""
    paths = sorted((root / "train").rglob("*.JPEG"))
    parts = [[paths[number % len(paths)] for number in range(worker, images, workers)] for worker in range(workers)]
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(pillow_images, [part[:2] for part in parts]))  # the workers have started
        begin = time.perf_counter()
        done = sum(pool.map(pillow_images, parts))
        return done / (time.perf_counter() - begin)


def rate(batches: Iterator[int], skip: int = 4) -> float:
    """Return images/s after the first `skip` batches, which fill what is decoded ahead."""
    for _ in range(skip):
        next(batches)
    begin = time.perf_counter()
    return sum(batches) / (time.perf_counter() - begin)


def first_batch(root: str) -> None:
    """Print, as JSON, the seconds to the first batch from a kept index and what the index weighs; for a new process."""
    begin = time.perf_counter()
    import nvidia.dali.fn  # noqa: F401  its import is told apart

    imported = time.perf_counter()
    source = open_source(Path(root), threads=2, build=False)
    opened = time.perf_counter()
    source.train(SampleStream(source.train_samples, seed=1), 0).read(BATCH)
    index = open_index(Path(root), "train", build=False)
    result = {
        "import_s": imported - begin,
        "open_s": opened - imported,
        "first_batch_s": time.perf_counter() - imported,
        "files": len(index),
        "index_bytes_per_file": index.nbytes / len(index),
    }
    print(json.dumps(result))


def compare(threads: int, turns: int, images: int) -> dict[str, float]:
    """Return medians over turns: images/s of each loader, and ratios within a turn."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_set(root, 16, 32, [draw(seed) for seed in range(128)])
        loaders = {
            "ours": lambda: rate(ours(root, threads, images)),
            "dali_reader": lambda: rate(dali_reader(root, threads, images)),
            "pillow": partial(pillow_rate, root, threads, images // 2),
        }
        rates = [{name: measure() for name, measure in loaders.items()} for _ in range(turns)]
    medians = {f"{name}_images_per_s": statistics.median(turn[name] for turn in rates) for name in loaders}
    ratios = {
        f"ours_over_{other}": statistics.median(turn["ours"] / turn[other] for turn in rates)
        for other in ("dali_reader", "pillow")
    }
    return {**medians, **ratios}


def time_index() -> dict[str, float]:
    """Return what 100,000 files cost: indexing them, and opening the kept index in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_set(root, 100, 1000, [draw(seed) for seed in range(4)])
        begin = time.perf_counter()
        open_source(root, 1)
        indexed = time.perf_counter() - begin
        command = [sys.executable, __file__, "--first-batch", folder]
        result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        return {"indexing_s": indexed, **result}


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each loader")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--images", type=int, default=1280, help="of each loader in a turn")
    parser.add_argument("--json", type=Path, help="write the results here too")
    parser.add_argument("--first-batch", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.first_batch:
        first_batch(arguments.first_batch)
        return
    results = {"threads": arguments.threads, **compare(arguments.threads, arguments.turns, arguments.images)}
    results.update(time_index())
    for name, value in results.items():
        print(f"{name:24} {value:10.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
