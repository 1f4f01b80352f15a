"""A small ImageNet that is drawn: the path from files to a trained network without the data.

Class (s, t) is a shape s filled with a texture t. Colours, sizes, places, turns and backgrounds are chance and tell
nothing, so a network must see both to know the class. Images are JPEGs of varied sizes in ImageNet's layout.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from nnabla_torus.failure import UserError

SHAPES = ("disc", "triangle", "square", "star", "ring", "cross", "half", "flower", "moon", "gear")
TEXTURES = ("stripes", "checks", "dots", "plain", "circles", "blotches", "grid", "waves")
MOST_CLASSES = len(SHAPES) * len(TEXTURES)
SMALLEST, LARGEST = 96, 224  # sides in pixels
QUALITY = 90
FIRST_WNID = 90_000_000  # WordNet's noun offsets end far below


def wnid(label: int) -> str:
    """Return the name of a class's folder, in the form of WordNet's ids."""
    return f"n{FIRST_WNID + label:08d}"


def write(out: Path, classes: int, per_class: int, val_per_class: int, seed: int) -> Iterator[Path]:
    """Write `out/train/<wnid>/*.JPEG` and `out/val/<wnid>/*.JPEG`; yields each file. The same bytes for the same seed.

    Raises UserError for too many classes or a folder that is in use.
    """
    if not 2 <= classes <= MOST_CLASSES:
        raise UserError(f"{classes} classes cannot be drawn; there are shapes and textures for 2 to {MOST_CLASSES}")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; name a new folder")
    for split, count, stream in (("train", per_class, 0), ("val", val_per_class, 1)):
        for label in range(classes):
            folder = out / split / wnid(label)
            folder.mkdir(parents=True)
            for number in range(count):
                random = np.random.Generator(np.random.Philox(key=[seed, stream], counter=[0, 0, label, number]))
                path = folder / f"{wnid(label)}_{number}.JPEG"
                path.write_bytes(encode(draw(label, classes, random)))
                yield path


def encode(pixels: np.ndarray) -> bytes:
    """Return (height, width, 3) uint8 as the bytes of a JPEG."""
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=QUALITY)
    return written.getvalue()


def look(label: int, classes: int) -> tuple[str, str]:
    """Return (shape, texture) of a class: about as many shapes are in use as textures, and enough for all classes."""
    shapes = max(math.ceil(math.sqrt(classes)), -(-classes // len(TEXTURES)))
    textures = -(-classes // shapes)
    return SHAPES[label // textures], TEXTURES[label % textures]


def draw(label: int, classes: int, random: np.random.Generator) -> np.ndarray:
    """Draw one image of a class: uint8 (height, width, 3), sides of 96 to 224 pixels."""
    shape, texture = look(label, classes)
    height, width = random.integers(SMALLEST, LARGEST, 2, endpoint=True)
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    radius = random.uniform(0.3, 0.48) * min(height, width)
    y = (rows - random.uniform(radius, height - radius)) / radius  # the shape fills the unit circle
    x = (columns - random.uniform(radius, width - radius)) / radius
    inside = _shape(shape, *_turned(x, y, random.uniform(0, 2 * np.pi)))
    tone = _texture(texture, *_turned(x, y, random.uniform(0, 2 * np.pi)), random)
    dark, light, far, near = _colours(random)
    slope = _turned(columns / width, rows / height, random.uniform(0, 2 * np.pi))[0][..., None]
    ground = far + (near - far) * np.clip(slope, 0, 1)
    filled = dark + (light - dark) * tone[..., None]
    image = np.where(inside[..., None], filled, ground) + random.normal(0, 8, (height, width, 1))
    return np.clip(image, 0, 255).astype(np.uint8)


def _turned(x: np.ndarray, y: np.ndarray, angle: float) -> tuple[np.ndarray, np.ndarray]:
    cos, sin = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    return cos * x + sin * y, cos * y - sin * x


def _colours(random: np.random.Generator) -> np.ndarray:
    """Draw (4, 3) colours of 0 to 255: dark and light of the texture, two greyish ones of the ground between them."""
    hue = random.uniform(-45, 45, (4, 3))
    return np.array([[40], [215], [95], [160]]) + hue * np.array([[0.7], [0.7], [1], [1]])


def _shape(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return which pixels lie inside a shape."""
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    edges = {
        "disc": 0.85,
        "square": 0.7 * radius / np.maximum(np.maximum(abs(x), abs(y)), 1e-6),
        "triangle": 0.55 / np.cos(angle % (2 * np.pi / 3) - np.pi / 3),
        "star": 0.62 + 0.38 * np.cos(5 * angle),
        "flower": 0.65 + 0.3 * np.cos(3 * angle),
        "gear": np.where(np.cos(10 * angle) > 0, 0.95, 0.65),
    }
    if name in edges:
        return radius < edges[name]
    if name == "cross":
        return (np.minimum(abs(x), abs(y)) < 0.25) & (np.maximum(abs(x), abs(y)) < 0.95)
    cut = {"ring": radius > 0.5, "half": x > 0, "moon": np.hypot(x - 0.45, y) > 0.7}[name]
    return (radius < 0.95) & cut


def _texture(name: str, x: np.ndarray, y: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return tones of 0 to 1; a period is about a quarter of the shape."""
    frequency = 2 * np.pi * random.uniform(1.6, 2.4)
    phase = random.uniform(0, 2 * np.pi, 2)
    across, along = np.sin(frequency * x + phase[0]), np.sin(frequency * y + phase[1])
    if name == "stripes":
        tone = across > 0
    elif name == "checks":
        tone = across * along > 0
    elif name == "dots":
        tone = across + along > 0.9
    elif name == "plain":
        tone = np.full(x.shape, random.integers(2))
    elif name == "circles":
        tone = np.sin(frequency * np.hypot(x, y) + phase[0]) > 0
    elif name == "blotches":
        coarse = Image.fromarray(random.normal(0, 1, (12, 12)).astype(np.float32))
        tone = np.asarray(coarse.resize((x.shape[1], x.shape[0]), Image.Resampling.BICUBIC)) > 0
    elif name == "grid":
        tone = np.maximum(across, along) > 0.85
    else:  # waves
        tone = np.sin(frequency * x + 2 * along + phase[0]) > 0
    return np.asarray(tone, np.float32)
