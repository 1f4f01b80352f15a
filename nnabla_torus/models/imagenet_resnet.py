"""The residual networks of ImageNet, with 18, 34, 50, 101 and 152 layers (He et al. 2015).

    images -> conv 7x7 /2 - bn - relu -> max 3x3 /2 -> 4 stages of blocks -> mean over pixels -> affine -> logits

    basic (18, 34)         x -- conv 3x3 (/2) -- conv 3x3 ------------- (+) - relu
    bottleneck (50 to 152) x -- conv 1x1 ------- conv 3x3 -- conv 1x1 - (+) - relu
                            `-- x, or conv 1x1 (/2) where the shape changes --'

Every convolution is followed by batch normalisation, and all but the last of a block by relu. Where a bottleneck halves
the image: v1, as published, in its first convolution; v1.5, as most compare, in its 3x3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import nnabla as nn
import nnabla.functions as F

from nnabla_torus.models.layers import ONE, ZERO, Layers, Layout

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
WIDTHS = (64, 128, 256, 512)
EXPANSION = 4  # of a bottleneck's last convolution
COLOURS = 3


@dataclass(frozen=True)
class ImageNetResNet:
    """A residual network of `depth` layers.

    `last_gamma_zero`: every block begins as the identity (Goyal et al. 2017). Images of layout NHWC may have a fourth
    channel, which is not looked at; nnabla computes that layout on a GPU only. Half precision is the context's matter.
    """

    classes: int
    depth: int
    version: Literal["v1", "v1.5"]
    last_gamma_zero: bool
    layout: Layout
    seed: int

    def __call__(self, images: nn.Variable, train: bool) -> nn.Variable:
        """Return logits of (n, classes) for images of (n, 3, height, width), or (n, height, width, 3 or 4)."""
        layers = Layers(train, self.seed, self.layout)
        with nn.parameter_scope("stem"):
            x = layers.convolution("conv", images, WIDTHS[0], kernel=7, stride=2, inputs=COLOURS)
            x = F.relu(layers.batch_normalization("conv", x))
        x = layers.max_pooling(x, kernel=3, stride=2, pad=1)
        for stage, (blocks, width) in enumerate(zip(BLOCKS[self.depth], WIDTHS)):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                with nn.parameter_scope(f"stage{stage}/block{block}"):
                    x = self._block(layers, x, width, stride)
        return layers.affine("head", layers.mean_over_pixels(x), self.classes)

    def _block(self, layers: Layers, x: nn.Variable, width: int, stride: int) -> nn.Variable:
        if self.depth < 50:
            convolutions = [(width, 3, stride), (width, 3, 1)]
        else:
            first, middle = (stride, 1) if self.version == "v1" else (1, stride)
            convolutions = [(width, 1, first), (width, 3, middle), (EXPANSION * width, 1, 1)]
        outputs = convolutions[-1][0]
        shortcut = x
        if stride != 1 or layers.channels(x) != outputs:
            shortcut = layers.batch_normalization(
                "shortcut", layers.convolution("shortcut", x, outputs, kernel=1, stride=stride)
            )
        y = x
        for number, (channels, kernel, step) in enumerate(convolutions):
            last = number == len(convolutions) - 1
            name = f"conv{number}"
            y = layers.convolution(name, y, channels, kernel, step)
            y = layers.batch_normalization(name, y, ZERO if last and self.last_gamma_zero else ONE)
            y = y if last else F.relu(y)
        return F.relu(y + shortcut)
