"""Draws the small image files that the tests read."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest


def encode(height: int, width: int, seed: int = 0, kind: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    """Return an encoded image of coarse random colours."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: tools/setup.sh dali")
    colours = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3), np.uint8)
    pixels = colours.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    encoded = io.BytesIO()
    image.fromarray(pixels).convert(mode).save(encoded, kind, **options)
    return encoded.getvalue()


def make_split(folder: Path, classes: Mapping[str, int], size: int = 40) -> None:
    """Write that many images into each class folder, all of different sizes and pixels."""
    number = 0
    for name, images in classes.items():
        (folder / name).mkdir(parents=True)
        for image in range(images):
            content = encode(size + number % 7, size + number % 5, seed=hash_of(folder.name) + number)
            (folder / name / f"{name}_{image}.JPEG").write_bytes(content)
            number += 1


def hash_of(name: str) -> int:
    """Return a number that is the same in every process, unlike `hash`."""
    return sum(name.encode()) * 1000
