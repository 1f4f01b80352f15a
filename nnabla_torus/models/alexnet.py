"""AlexNet with batch normalisation in place of local response normalisation, as Jia et al. (2018) trained it.

    images 227 x 227 -> conv 11x11 /4 -> max -> conv 5x5 -> max -> conv 3x3 -> conv 3x3 -> conv 3x3 -> max -> bn
                     -> affine 4096 -> affine 4096 -> affine -> logits

Batch normalisation and relu follow every convolution; another batch normalisation, after the last pooling, is Jia et
al.'s own (recalled, like the rest of this shape: one column, no groups, dropout of a half before the last two layers).
"""

from __future__ import annotations

from dataclasses import dataclass

import nnabla as nn
import nnabla.functions as F

from nnabla_torus.models.layers import Layers, Layout

# Channels, kernel, stride, padding, whether a 3x3 pooling of stride 2 follows: Krizhevsky et al. (2012), section 3.5.
CONVOLUTIONS = (
    (96, 11, 4, 0, True),
    (256, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, True),
)
HIDDEN = 4096
COLOURS = 3
DROPOUT = 0.5


@dataclass(frozen=True)
class AlexNet:
    """AlexNet with batch normalisation; layouts as in ImageNetResNet.

    Dropout draws from nnabla's own random numbers, which a trainer seeds for each step and rank.
    """

    classes: int
    layout: Layout
    seed: int

    def __call__(self, images: nn.Variable, train: bool) -> nn.Variable:
        """Return logits of (n, classes) for images of (n, 3, height, width), or (n, height, width, 3 or 4)."""
        layers = Layers(train, self.seed, self.layout)
        x = images
        for number, (width, kernel, stride, pad, pooled) in enumerate(CONVOLUTIONS):
            name = f"conv{number}"
            x = layers.convolution(name, x, width, kernel, stride, pad=pad, inputs=COLOURS if number == 0 else None)
            x = F.relu(layers.batch_normalization(name, x))
            x = layers.max_pooling(x, kernel=3, stride=2) if pooled else x
        x = layers.batch_normalization("pooled", x)
        for number in range(2):
            x = F.relu(layers.affine(f"hidden{number}", x, HIDDEN, deviation=0.005))
            x = F.dropout(x, DROPOUT) if train else x
        return layers.affine("head", x, self.classes)
