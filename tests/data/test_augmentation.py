from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from nnabla_torus.data.augmentation import Arguments, Augmentation, Crop, draw_arguments, noise_tile

MANY = 4000


def draw(
    count: int = MANY, extent: tuple[int, int] = (300, 400), size: int = 64, seed: int = 3, **how: object
) -> Arguments:
    samples = np.arange(count)
    extents = np.tile(np.array([extent]), (count, 1))
    return draw_arguments(Augmentation(**how), size, seed, np.zeros_like(samples), samples, extents)  # type: ignore[arg-type]


@pytest.mark.parametrize("extent", [(300, 400), (1, 1), (1, 500), (500, 1), (37, 2)])
@pytest.mark.parametrize(
    "how",
    [
        {"random_resized_crop": Crop()},
        {"resizing": (70, 120), "aspect_distortion": (0.7, 1.4)},
        {"resizing": (8, 9)},
        {},
    ],
)
def test_regions_lie_within_the_image(extent: tuple[int, int], how: dict[str, object]) -> None:
    drawn = draw(extent=extent, **how)
    assert drawn.shapes.min() >= 1
    assert drawn.anchors.min() >= 0
    assert np.all(drawn.anchors + drawn.shapes <= np.array(extent))


def test_random_resized_crop_has_the_areas_and_aspects_asked_for() -> None:
    drawn = draw(random_resized_crop=Crop(area=(0.1, 0.5), aspect=(0.5, 2.0)))
    heights, widths = drawn.shapes.T.astype(float)
    areas, aspects = heights * widths / (300 * 400), widths / heights
    assert 0.099 < areas.min() < 0.11 and 0.47 < areas.max() < 0.505
    assert 0.49 < aspects.min() < 0.52 and 1.95 < aspects.max() < 2.03
    assert abs(np.median(aspects) - 1) < 0.05  # as many are wide as are tall
    middles = (drawn.anchors + drawn.shapes / 2).mean(axis=0)
    assert np.abs(middles - [150, 200]).max() < 3


def test_an_image_too_long_for_any_aspect_gives_its_largest_part() -> None:
    drawn = draw(extent=(30, 1000), random_resized_crop=Crop(area=(0.9, 1.0), aspect=(0.5, 2.0)))
    assert np.unique(drawn.shapes, axis=0).tolist() == [[30, 60]]
    assert np.ptp(drawn.anchors[:, 1]) > 800  # at any place


def test_without_a_crop_the_centre_is_taken() -> None:
    drawn = draw(count=2)
    assert drawn.shapes.tolist() == [[300, 300]] * 2
    assert drawn.anchors.tolist() == [[0, 50]] * 2


def test_resizing_draws_the_length_of_the_shorter_side() -> None:
    drawn = draw(size=64, resizing=(64, 128))
    # a side of 64 takes the shorter side whole, one of 128 half of it
    assert drawn.shapes[:, 0].min() in (150, 151) and drawn.shapes[:, 0].max() in (299, 300)
    assert np.array_equal(drawn.shapes[:, 0], drawn.shapes[:, 1])
    ratio = draw(size=64, resizing=(128, 128), aspect_distortion=(0.5, 2.0)).shapes
    assert 1.9 < (ratio[:, 1] / ratio[:, 0]).max() < 2.05 and 0.48 < (ratio[:, 1] / ratio[:, 0]).min() < 0.53


def test_flipping_brightness_contrast_noise() -> None:
    drawn = draw(flipping=0.25, brightness=0.4, contrast=0.1)
    assert abs(drawn.mirror.mean() - 0.25) < 0.03 and set(drawn.mirror) == {0, 1}
    assert 0.6 <= drawn.brightness.min() < 0.61 and 1.39 < drawn.brightness.max() <= 1.4
    assert 0.9 <= drawn.contrast.min() < 0.91 and 1.09 < drawn.contrast.max() <= 1.1
    assert drawn.noise.min() == 0 and drawn.noise.max() == 255
    plain = draw()
    assert not plain.mirror.any() and np.all(plain.brightness == 1) and np.all(plain.contrast == 1)


def test_matrices() -> None:
    identity = np.array([[1, 0, 0], [0, 1, 0]])
    assert np.array_equal(draw(count=3).matrices, np.tile(identity, (3, 1, 1)))
    shifts = draw(padding=4).matrices - identity
    assert np.array_equal(np.unique(shifts[:, :, 2]), np.arange(-4, 5))
    assert not shifts[:, :, :2].any()
    corner_and_centre = np.array([[0, 32], [0, 32], [1, 1]])
    zoomed = draw(count=2, scaling=(2.0, 2.0)).matrices @ corner_and_centre  # output 0 shows input 16, the centre stays
    assert np.allclose(zoomed, [[[16, 32], [16, 32]]] * 2)
    turned = draw(rotation=90).matrices
    assert np.allclose(turned @ corner_and_centre[:, 1], 32, atol=1e-4)
    assert np.allclose(np.linalg.det(turned[:, :, :2]), 1, atol=1e-5)
    angles = np.rad2deg(np.arctan2(turned[:, 0, 1], turned[:, 0, 0]))
    assert -90 <= angles.min() < -89 and 89 < angles.max() <= 90


def test_one_augmentation_does_not_change_what_others_draw() -> None:
    alone = draw(flipping=0.5, random_resized_crop=Crop())
    together = draw(flipping=0.5, random_resized_crop=Crop(), rotation=5, noise=3, brightness=0.2, padding=3)
    assert np.array_equal(alone.mirror, together.mirror)
    assert np.array_equal(alone.anchors, together.anchors) and np.array_equal(alone.shapes, together.shapes)


def test_noise_tile_is_normal_and_always_the_same() -> None:
    tile = noise_tile(100)
    assert tile.shape == (100, 100, 3) and tile.dtype == np.float32
    assert abs(tile.mean()) < 0.02 and abs(tile.std() - 1) < 0.02
    assert abs((np.abs(tile) < 1).mean() - 0.6827) < 0.01
    assert np.array_equal(tile, noise_tile(100))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"random_resized_crop": {"area": [0.5, 0.1]}}, "must be .lowest, highest."),
        ({"random_resized_crop": {"area": [0.5, 1.5]}}, "at most 1"),
        ({"scaling": [0, 1]}, "above 0"),
        ({"random_resized_crop": {}, "resizing": [256, 480]}, "drop resizing"),
        ({"rotate": 3}, "Extra inputs"),
        ({"flipping": 2}, "less than or equal to 1"),
    ],
)
def test_what_is_wrong_is_named(how: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Augmentation.model_validate(how)
