"""Pipelines of NVIDIA DALI that turn encoded images into input of a network, on the CPU or on a GPU.

None of DALI's own random operators is used: what is drawn comes with each sample as an argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Literal, Optional

import numpy as np

from nnabla_torus.data.augmentation import (
    IMAGENET_DEVIATION,
    IMAGENET_MEAN,
    NOISE_MARGIN,
    Augmentation,
    noise_tile,
)
from nnabla_torus.failure import UserError


@dataclass(frozen=True)
class Decoding:
    """How images become input of a network, and what DALI may use for it."""

    size: int = 224
    test_resize: int = 256  # of the shorter side, before the centre is cut
    mean: tuple[float, float, float] = IMAGENET_MEAN
    deviation: tuple[float, float, float] = IMAGENET_DEVIATION
    layout: Literal["NCHW", "NHWC"] = "NCHW"  # NHWC has a fourth channel of zeros, which tensor cores want
    dtype: Literal["float", "half"] = "float"
    threads: int = 2
    piece: int = 64  # samples; threads wait for each other at the end of every operator on a piece
    prefetch: int = 2  # pieces
    gpu: Optional[int] = None  # device number; None decodes on the CPU
    on_error: Literal["stop", "replace"] = "stop"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of one image as the network gets it."""
        return (3, self.size, self.size) if self.layout == "NCHW" else (self.size, self.size, 4)

    @property
    def array_type(self) -> type[np.floating[Any]]:
        """Type of the pixels as the network gets them."""
        return np.float32 if self.dtype == "float" else np.float16


def build_pipeline(
    in_shards: bool, decoding: Decoding, augmentation: Optional[Augmentation], feed: Callable[[], list[Any]]
) -> Any:
    """Return a built pipeline that asks `feed` for pieces: encoded images, from shards, or else the paths of files.

    With an augmentation a piece also has the arguments that it needs; without one the shorter side is resized and the
    centre cut. Raises UserError where DALI is not installed.
    """
    try:
        from nvidia.dali import Pipeline, fn, types
    except ImportError:
        raise UserError("reading image files needs DALI; run tools/setup.sh dali, or pip install '.[dali]'") from None
    kinds = {  # type and dimensions of one sample's
        "anchors": (types.INT32, 1),
        "shapes": (types.INT32, 1),
        "mirror": (types.INT32, 0),
        "matrices": (types.FLOAT, 2),
        "brightness": (types.FLOAT, 0),
        "contrast": (types.FLOAT, 0),
        "noise": (types.INT32, 1),
    }
    needs = augmentation.needs if augmentation else ()
    inputs = [(types.UINT8, 1), *(kinds[name] for name in needs)]
    pipeline = Pipeline(
        batch_size=decoding.piece,
        num_threads=decoding.threads,
        device_id=decoding.gpu,
        prefetch_queue_depth=decoding.prefetch,
    )
    with pipeline:
        encoded, *drawn = fn.external_source(
            source=feed,
            num_outputs=len(inputs),
            batch=True,
            dtype=[kind for kind, _ in inputs],
            ndim=[dimensions for _, dimensions in inputs],
        )
        if not in_shards:
            encoded = fn.io.file.read(encoded, dont_use_mmap=True)  # mapping costs more than copying so little
        arguments = dict(zip(needs, drawn))
        if augmentation is None:
            images = _centre(encoded, decoding)
        else:
            images = _augmented(encoded, decoding, augmentation, arguments)
        pipeline.set_outputs(
            fn.crop_mirror_normalize(
                images,
                crop=(decoding.size, decoding.size),
                mirror=arguments.get("mirror", 0),
                mean=list(decoding.mean),
                std=list(decoding.deviation),
                dtype=types.FLOAT if decoding.dtype == "float" else types.FLOAT16,
                output_layout="CHW" if decoding.layout == "NCHW" else "HWC",
                pad_output=decoding.layout == "NHWC",
            )
        )
    pipeline.build()
    return pipeline


def _decoder_options(decoding: Decoding) -> dict[str, Any]:
    import nvidia.dali
    from nvidia.dali import types

    options = {"device": "cpu" if decoding.gpu is None else "mixed", "output_type": types.RGB}
    if int(nvidia.dali.__version__.split(".")[0]) >= 2:  # DALI 1 never lets EXIF turn images
        options["adjust_orientation"] = False
    return options


def _centre(encoded: Any, decoding: Decoding) -> Any:
    from nvidia.dali import fn, types

    images = fn.decoders.image(encoded, **_decoder_options(decoding))
    return fn.resize(images, resize_shorter=decoding.test_resize, interp_type=types.INTERP_TRIANGULAR)


def _augmented(encoded: Any, decoding: Decoding, augmentation: Augmentation, arguments: dict[str, Any]) -> Any:
    """Return images of the network's size; only what is switched on has an operator."""
    from nvidia.dali import fn, math, types

    size = [decoding.size, decoding.size]
    grey = float(np.mean(decoding.mean))
    images = fn.decoders.image_slice(
        encoded,
        arguments["anchors"],
        arguments["shapes"],
        axis_names="HW",
        normalized_anchor=False,
        normalized_shape=False,
        **_decoder_options(decoding),
    )
    images = fn.resize(images, size=size, interp_type=types.INTERP_TRIANGULAR)
    if augmentation.warps:
        images = fn.warp_affine(images, matrix=arguments["matrices"], size=size, fill_value=grey)
    if augmentation.recolours:
        images = fn.brightness_contrast(
            images,
            brightness=arguments["brightness"],
            contrast=arguments["contrast"],
            contrast_center=grey,  # so that contrast alone leaves an average image as bright as it is
            dtype=types.FLOAT,
        )
    if augmentation.noise:
        tile = types.Constant(noise_tile(decoding.size + NOISE_MARGIN), device="cpu" if decoding.gpu is None else "gpu")
        images = images + augmentation.noise * fn.slice(tile, start=arguments["noise"], shape=size, axes=[0, 1])
    return math.clamp(images, 0.0, 255.0) if augmentation.recolours or augmentation.noise else images
