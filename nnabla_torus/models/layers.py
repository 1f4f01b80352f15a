"""The layers that networks are made of: channels first or last, initialised as their papers say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

import nnabla as nn
import nnabla.functions as F
import nnabla.initializer as I
import nnabla.parametric_functions as PF
import numpy as np

Layout = Literal["NCHW", "NHWC"]
ZERO = I.ConstantInitializer(0)
ONE = I.ConstantInitializer(1)


@dataclass(frozen=True)
class Layers:
    """Makes layers for a training or an evaluation graph.

    Initial weights come from `seed` in the order in which layers are made, so all ranks begin with the same. With
    layout NHWC, which nnabla computes on a GPU only, weights have another shape, too: (output, height, width, input)
    instead of (output, input, height, width).
    """

    train: bool
    seed: int
    layout: Layout
    random: np.random.RandomState = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "random", np.random.RandomState(self.seed))

    @property
    def channels_last(self) -> bool:
        """Whether the channels are the last axis."""
        return self.layout == "NHWC"

    def channels(self, x: nn.Variable) -> int:
        """Return how many channels x has."""
        return int(x.shape[-1 if self.channels_last else 1])

    def convolution(
        self,
        name: str,
        x: nn.Variable,
        width: int,
        kernel: int,
        stride: int = 1,
        *,
        pad: Optional[int] = None,
        inputs: Optional[int] = None,
        bias: bool = False,
        zero: bool = False,
    ) -> nn.Variable:
        """A convolution to `width` channels, padded so that at stride 1 the size stays; weights by He's fan-out.

        `inputs`: only so many channels of x are looked at, those beyond are padding. `zero`: the weights begin at 0.
        Source of the initialisation: He et al., Delving Deep into Rectifiers (2015), section 2.2, backward form.
        """
        inputs = inputs or self.channels(x)
        pad = kernel // 2 if pad is None else pad
        square = (kernel, kernel)
        shape = (width, *square, inputs) if self.channels_last else (width, inputs, *square)
        spread = I.NormalInitializer(float(np.sqrt(2 / (kernel * kernel * width))), rng=self.random)
        with nn.parameter_scope(name), nn.parameter_scope("conv"):
            weight = nn.parameter.get_parameter_or_create("W", shape, ZERO if zero else spread)
            offset = nn.parameter.get_parameter_or_create("b", (width,), ZERO) if bias else None
        if self.channels(x) > inputs:  # zeros beside the weights, instead of a copy of x without its padding
            missing = (0, self.channels(x) - inputs)
            weight = F.pad(weight, missing if self.channels_last else (*missing, 0, 0, 0, 0))
        return F.convolution(
            x, weight, offset, pad=(pad, pad), stride=(stride, stride), channel_last=self.channels_last
        )

    def batch_normalization(self, name: str, x: nn.Variable, gamma: I.ConstantInitializer = ONE) -> nn.Variable:
        """Batch normalisation over all but the channels: with the batch's statistics in training, else the running."""
        axis = x.ndim - 1 if self.channels_last else 1
        with nn.parameter_scope(name):
            return PF.batch_normalization(
                x, axes=[axis], batch_stat=self.train, param_init={"gamma": gamma, "beta": ZERO}
            )

    def max_pooling(self, x: nn.Variable, kernel: int, stride: int, pad: int = 0) -> nn.Variable:
        """The largest of each kernel x kernel window."""
        return F.max_pooling(x, (kernel, kernel), (stride, stride), pad=(pad, pad), channel_last=self.channels_last)

    def mean_over_pixels(self, x: nn.Variable) -> nn.Variable:
        """Return (n, channels)."""
        return F.mean(x, axis=(1, 2) if self.channels_last else (2, 3))

    def affine(self, name: str, x: nn.Variable, width: int, deviation: float = 0.01) -> nn.Variable:
        """A fully connected layer of (n, ...) with a bias, its weights drawn with this standard deviation."""
        spread = I.NormalInitializer(deviation, rng=self.random)
        with nn.parameter_scope(name):
            return PF.affine(x, width, w_init=spread, b_init=ZERO)
