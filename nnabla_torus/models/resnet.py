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

from nnabla_torus.models.layers import ONE, ZERO, Layers


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
        layers = Layers(train, self.seed, "NCHW")
        x = F.relu(self._convolution(layers, "stem", images, self.widths[0], kernel=3))
        for stage, (blocks, width) in enumerate(zip(self.blocks, self.widths)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                with nn.parameter_scope(f"stage{stage}/block{block}"):
                    x = self._block(layers, x, width, stride)
        return layers.affine("head", layers.mean_over_pixels(x), self.classes)

    def _block(self, layers: Layers, x: nn.Variable, width: int, stride: int) -> nn.Variable:
        shortcut = x
        if stride != 1 or layers.channels(x) != width:
            shortcut = self._convolution(layers, "shortcut", x, width, kernel=1, stride=stride)
        y = F.relu(self._convolution(layers, "first", x, width, kernel=3, stride=stride))
        y = self._convolution(layers, "second", y, width, kernel=3, begin_at_zero=True)
        return F.relu(y + shortcut)

    def _convolution(
        self,
        layers: Layers,
        name: str,
        x: nn.Variable,
        width: int,
        kernel: int,
        stride: int = 1,
        begin_at_zero: bool = False,
    ) -> nn.Variable:
        """A convolution and its normalisation, or in its place a bias."""
        if not self.batch_normalization:
            return layers.convolution(name, x, width, kernel, stride, bias=True, zero=begin_at_zero)
        y = layers.convolution(name, x, width, kernel, stride)
        return layers.batch_normalization(name, y, ZERO if begin_at_zero else ONE)
