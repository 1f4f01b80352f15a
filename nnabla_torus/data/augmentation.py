"""What is done to a training image, by name, and each sample's share of chance in it.

    stored image
      -> a region: random_resized_crop, or resizing and aspect_distortion
      -> resized to the network's input
      -> turned, scaled and shifted: rotation, scaling, padding
      -> recoloured: brightness, contrast, noise
      -> mirrored: flipping

Chance is drawn here, from (seed, epoch, sample), and handed to DALI's operators as arguments. Every draw has a place of
its own in the sample's list of draws, so that switching one augmentation on leaves what the others draw.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Optional

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from nnabla_torus.data.philox import uniforms

IMAGENET_MEAN = (123.675, 116.28, 103.53)  # of RGB from 0 to 255, the values in common use
IMAGENET_DEVIATION = (58.395, 57.12, 57.375)

ATTEMPTS = 10  # to find a region of the drawn area and aspect within the image; then the whole width or height
NOISE_MARGIN = 256  # the noise tile is so much larger than an image: 256 x 256 cuts

# Where in a sample's list of draws each augmentation has its own; a slice holds two, y and x.
FLIP, BRIGHTNESS, CONTRAST, ROTATION, SCALING, RESIZING, ASPECT = range(7)
PADDING, NOISE, PLACE = slice(7, 9), slice(9, 11), slice(11, 13)
REGION = slice(13, 13 + 2 * ATTEMPTS)  # area and aspect of each attempt


def _ordered(pair: tuple[float, float]) -> tuple[float, float]:
    if not 0 < pair[0] <= pair[1]:
        raise ValueError(f"{list(pair)} must be [lowest, highest], both above 0")
    return pair


Range = Annotated[tuple[float, float], AfterValidator(_ordered)]


class Crop(BaseModel):
    """A region of random area (share of the image) and aspect (width / height), Szegedy et al., as Goyal et al. did."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    area: Range = (0.08, 1.0)
    aspect: Range = (3 / 4, 4 / 3)

    @model_validator(mode="after")
    def _area_is_a_share(self) -> Crop:
        if self.area[1] > 1:
            raise ValueError(f"area {list(self.area)} must be shares of the image, at most 1")
        return self


class Augmentation(BaseModel):
    """The augmentations by name; what is not given is off. With neither crop the centre is taken.

    Lengths are pixels of the network's input, angles degrees, strengths of brightness and contrast the largest relative
    change, `noise` the standard deviation in grey levels of 0 to 255.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    random_resized_crop: Optional[Crop] = None
    resizing: Optional[Range] = None  # the shorter side becomes so long, drawn; then a random place: He et al.
    aspect_distortion: Optional[Range] = None  # of the region that `resizing` takes
    flipping: Annotated[float, Field(ge=0, le=1)] = 0.0
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    scaling: Optional[Range] = None
    padding: Annotated[int, Field(ge=0)] = 0  # on every side; then a random place of the same size
    brightness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    contrast: Annotated[float, Field(ge=0, lt=1)] = 0.0
    noise: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _one_crop(self) -> Augmentation:
        if self.random_resized_crop and (self.resizing or self.aspect_distortion):
            raise ValueError("random_resized_crop chooses size and aspect itself; drop resizing and aspect_distortion")
        return self

    @property
    def warps(self) -> bool:
        """Whether the resized image is turned, scaled or shifted."""
        return bool(self.rotation or self.scaling or self.padding)

    @property
    def recolours(self) -> bool:
        """Whether brightness or contrast change the pixels."""
        return bool(self.brightness or self.contrast)

    @property
    def needs(self) -> tuple[str, ...]:
        """The fields of Arguments that matter."""
        uses = {
            "anchors": True,
            "shapes": True,
            "mirror": self.flipping,
            "matrices": self.warps,
            "brightness": self.recolours,
            "contrast": self.recolours,
            "noise": self.noise,
        }
        return tuple(name for name, used in uses.items() if used)


class Arguments(NamedTuple):
    """What DALI's operators are told, one row per sample; `anchors` and `shapes` are (y, x) in stored pixels."""

    anchors: np.ndarray  # int32 (n, 2)
    shapes: np.ndarray  # int32 (n, 2)
    mirror: np.ndarray  # int32 (n,)
    matrices: np.ndarray  # float32 (n, 2, 3), from the output's (x, y, 1) to the input's (x, y), from pixel corners
    brightness: np.ndarray  # float32 (n,), factor
    contrast: np.ndarray  # float32 (n,), factor
    noise: np.ndarray  # int32 (n, 2), where to cut the noise tile


def draw_arguments(
    augmentation: Augmentation, size: int, seed: int, epochs: np.ndarray, samples: np.ndarray, extents: np.ndarray
) -> Arguments:
    """Return every sample's arguments; `extents` is (n, 2), the height and width of each stored image."""
    drawn = uniforms(seed, epochs, samples, REGION.stop)
    if augmentation.random_resized_crop:
        regions = _random_regions(augmentation.random_resized_crop, drawn, extents)
    else:
        regions = _resized_regions(augmentation, size, drawn, extents)
    anchors = np.floor(drawn[:, PLACE] * (extents - regions + 1)).astype(np.int32)
    if not (augmentation.random_resized_crop or augmentation.resizing):
        anchors = ((extents - regions) // 2).astype(np.int32)
    return Arguments(
        anchors=anchors,
        shapes=regions.astype(np.int32),
        mirror=(drawn[:, FLIP] < augmentation.flipping).astype(np.int32),
        matrices=_matrices(augmentation, size, drawn),
        brightness=_factor(augmentation.brightness, drawn[:, BRIGHTNESS]),
        contrast=_factor(augmentation.contrast, drawn[:, CONTRAST]),
        noise=np.floor(drawn[:, NOISE] * NOISE_MARGIN).astype(np.int32),
    )


def noise_tile(size: int) -> np.ndarray:
    """Return the one tile that all noise is cut from: normal, mean 0, deviation 1, float32 (size, size, 3)."""
    drawn = uniforms(0, np.zeros(1, np.int64), np.zeros(1, np.int64), 2 * size * size * 3)[0]
    radius, angle = drawn.reshape(2, size, size, 3)
    normal = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)  # Box and Muller (1958)
    return normal.astype(np.float32)


def _random_regions(crop: Crop, drawn: np.ndarray, extents: np.ndarray) -> np.ndarray:
    """Return each region's height and width: the first attempt that fits, else the largest of an allowed aspect."""
    attempts = drawn[:, REGION].reshape(-1, ATTEMPTS, 2)
    height, width = extents[:, 0, None], extents[:, 1, None]
    area = _between(crop.area, attempts[..., 0]) * height * width
    aspect = np.exp(_between((np.log(crop.aspect[0]), np.log(crop.aspect[1])), attempts[..., 1]))
    heights, widths = np.rint(np.sqrt(area / aspect)), np.rint(np.sqrt(area * aspect))
    fits = (heights >= 1) & (widths >= 1) & (heights <= height) & (widths <= width)
    chosen = np.arange(len(drawn)), fits.argmax(axis=1)
    own = np.clip(extents[:, 1] / extents[:, 0], *crop.aspect)
    largest_height = np.minimum(extents[:, 0], np.rint(extents[:, 1] / own))
    largest_width = np.minimum(extents[:, 1], np.rint(extents[:, 0] * own))
    found = fits.any(axis=1)
    regions = np.where(found, heights[chosen], largest_height), np.where(found, widths[chosen], largest_width)
    return np.maximum(np.stack(regions, axis=1), 1).astype(np.int64)


def _resized_regions(augmentation: Augmentation, size: int, drawn: np.ndarray, extents: np.ndarray) -> np.ndarray:
    """Return height and width of what becomes size x size once the shorter side is as long as drawn, or `size`."""
    shorter = extents.min(axis=1)
    longest = _between(augmentation.resizing, drawn[:, RESIZING]) if augmentation.resizing else np.float64(size)
    side = shorter * np.minimum(size / longest, 1)
    low, high = augmentation.aspect_distortion or (1.0, 1.0)
    stretch = np.exp(_between((np.log(low), np.log(high)), drawn[:, ASPECT]) / 2)
    regions = np.stack([side / stretch, side * stretch], axis=1)
    return np.clip(np.rint(regions), 1, extents).astype(np.int64)


def _matrices(augmentation: Augmentation, size: int, drawn: np.ndarray) -> np.ndarray:
    """Return maps that turn and scale about the centre and shift by up to the padding, float32 (n, 2, 3)."""
    angle = np.deg2rad(augmentation.rotation) * (2 * drawn[:, ROTATION] - 1)
    scale = _between(augmentation.scaling, drawn[:, SCALING]) if augmentation.scaling else np.ones(len(drawn))
    shift = np.floor(drawn[:, PADDING] * (2 * augmentation.padding + 1)) - augmentation.padding
    cosine, sine, centre = np.cos(angle) / scale, np.sin(angle) / scale, size / 2
    rows = [
        (cosine, sine, centre - (cosine + sine) * centre + shift[:, 1]),
        (-sine, cosine, centre - (cosine - sine) * centre + shift[:, 0]),
    ]
    return np.array(rows, np.float32).transpose(2, 0, 1).copy()


def _between(limits: tuple[float, float], drawn: np.ndarray) -> np.ndarray:
    return limits[0] + (limits[1] - limits[0]) * drawn


def _factor(strength: float, drawn: np.ndarray) -> np.ndarray:
    return (1 + strength * (2 * drawn - 1)).astype(np.float32)
