"""Residual networks (He et al. 2015).

    images -> stem -> stage 0: block, block, ... -> stage 1: ... -> mean over pixels -> affine -> logits

    basic block    x --- conv 3x3 - bn - relu - conv 3x3 - bn --(+)-- relu -->
                    `---- x, or conv 1x1 - bn where the shape changes ---'

The first block of every stage but the first halves the image; a stage has its own number of channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import nnabla as nn
import nnabla.functions as F
import nnabla.initializer as I
import nnabla.parametric_functions as PF
import numpy as np


@dataclass(frozen=True)
class ResNet:
    """A residual network for small images: `blocks[i]` basic blocks of `widths[i]` channels in stage i.

    Every block begins as the identity: its last gamma is 0 (Goyal et al. 2017), or without batch normalisation its last
    convolution. Without batch normalisation the result for one image does not depend on the others in its batch.
    """

    classes: int
    blocks: tuple[int, ...]
    widths: tuple[int, ...]
    batch_normalization: bool
    seed: int

    def __call__(self, images: nn.Variable, train: bool) -> nn.Variable:
        """Return logits of (n, classes) for images of (n, channels, height, width)."""
        layers = _Layers(self.batch_normalization, train, np.random.RandomState(self.seed))
        x = F.relu(layers.convolution("stem", images, self.widths[0], kernel=3))
        for stage, (blocks, width) in enumerate(zip(self.blocks, self.widths)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                with nn.parameter_scope(f"stage{stage}/block{block}"):
                    x = layers.basic_block(x, width, stride)
        with nn.parameter_scope("head"):
            return PF.affine(
                F.mean(x, axis=(2, 3)), self.classes, w_init=I.NormalInitializer(0.01, rng=layers.random), b_init=_ZERO
            )


_ZERO = I.ConstantInitializer(0)
_ONE = I.ConstantInitializer(1)


@dataclass(frozen=True)
class _Layers:
    """The layers that networks are made of, with batch normalisation or, in its place, a bias."""

    batch_normalization: bool
    train: bool
    random: np.random.RandomState

    def basic_block(self, x: nn.Variable, width: int, stride: int) -> nn.Variable:
        """Two convolutions around which x is carried past."""
        shortcut = x
        if stride != 1 or x.shape[1] != width:
            shortcut = self.convolution("shortcut", x, width, kernel=1, stride=stride)
        y = F.relu(self.convolution("first", x, width, kernel=3, stride=stride))
        y = self.convolution("second", y, width, kernel=3, begin_at_zero=True)
        return F.relu(y + shortcut)

    def convolution(
        self, name: str, x: nn.Variable, width: int, kernel: int, stride: int = 1, begin_at_zero: bool = False
    ) -> nn.Variable:
        """A convolution and its normalisation; He's initialisation by fan-out."""
        spread = I.NormalInitializer(float(np.sqrt(2 / (kernel * kernel * width))), rng=self.random)
        with nn.parameter_scope(name):
            y = PF.convolution(
                x,
                width,
                (kernel, kernel),
                pad=(kernel // 2, kernel // 2),
                stride=(stride, stride),
                w_init=_ZERO if begin_at_zero and not self.batch_normalization else spread,
                b_init=_ZERO,
                with_bias=not self.batch_normalization,
            )
            if not self.batch_normalization:
                return y
            gamma = _ZERO if begin_at_zero else _ONE
            return PF.batch_normalization(y, batch_stat=self.train, param_init={"gamma": gamma, "beta": _ZERO})
