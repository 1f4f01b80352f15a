"""What a run may be told: the keys of a configuration, their types and what they mean.

Nothing here depends on the ranks; what does (a batch per rank, the grid) is checked when they are known.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Optional, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from nnabla_torus.config_errors import one_line
from nnabla_torus.data.augmentation import IMAGENET_DEVIATION, IMAGENET_MEAN, Augmentation
from nnabla_torus.failure import UserError

# Numbers are taken as they are written: 3 is also 3.0, but "3", 3.5 and true are no whole numbers.
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0)]
PositiveFloat = Annotated[float, Field(strict=True, gt=0)]
NonNegativeFloat = Annotated[float, Field(strict=True, ge=0)]
Flag = Annotated[bool, Field(strict=True)]

SMALLEST_FOR_ALEXNET = 67  # pixels; its last pooling then has one


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DigitsData(_Section):
    """scikit-learn's digits."""

    name: Literal["digits"]


class ImageNetData(_Section):
    """Image files in ImageNet's layout below `root`, decoded by DALI with so many `threads` on every rank.

    `train` and `val` are folders of class folders or tar shards, or patterns of shards; `val_labels` labels a folder
    without class folders. `index` is where the indexes are kept, root/.nnabla_torus unless given. Images of the
    network have sides of `size`; for evaluation the shorter side becomes `test_resize` and the centre is cut. `mean`
    and `deviation` are of RGB from 0 to 255. `piece` samples are decoded together, `prefetch` pieces ahead.
    """

    name: Literal["imagenet"]
    root: str
    train: str = "train"
    val: str = "val"
    val_labels: Optional[str] = None
    index: Optional[str] = None
    size: PositiveInt = 224
    test_resize: PositiveInt = 256
    mean: tuple[NonNegativeFloat, NonNegativeFloat, NonNegativeFloat] = IMAGENET_MEAN
    deviation: tuple[PositiveFloat, PositiveFloat, PositiveFloat] = IMAGENET_DEVIATION
    augmentation: Augmentation = Augmentation()
    threads: PositiveInt = 2
    piece: PositiveInt = 64
    prefetch: PositiveInt = 2
    on_error: Literal["stop", "replace"] = "stop"

    @model_validator(mode="after")
    def _centre_lies_within(self) -> ImageNetData:
        if self.test_resize < self.size:
            raise ValueError(f"has test_resize {self.test_resize} below size {self.size}; make it at least as large")
        return self


class ResNetModel(_Section):
    """A residual network of basic blocks; one entry of `blocks` and `widths` per stage."""

    name: Literal["resnet"]
    blocks: tuple[PositiveInt, ...] = (1, 1, 1)
    widths: tuple[PositiveInt, ...] = (16, 32, 64)
    batch_normalization: Flag = True

    @model_validator(mode="after")
    def _one_width_per_stage(self) -> ResNetModel:
        if not self.blocks or len(self.blocks) != len(self.widths):
            raise ValueError(
                f"has {len(self.blocks)} blocks but {len(self.widths)} widths; give one of each for every stage"
            )
        return self


class ImageNetResNetModel(_Section):
    """A residual network of ImageNet; `last_gamma_zero` begins every block as the identity (Goyal et al. 2017)."""

    name: Literal["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
    version: Literal["v1", "v1.5"] = "v1.5"
    last_gamma_zero: Flag = False
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    @property
    def depth(self) -> int:
        """Number of layers."""
        return int(self.name[len("resnet") :])


class AlexNetModel(_Section):
    """AlexNet with batch normalisation, as Jia et al. (2018) trained it."""

    name: Literal["alexnet"]
    layout: Literal["NCHW", "NHWC"] = "NCHW"


class BatchSize(_Section):
    """The samples of a step: `global_batch` over all ranks, or `batch_per_rank`; both must agree if both are given."""

    global_batch: Optional[PositiveInt] = None
    batch_per_rank: Optional[PositiveInt] = None

    @model_validator(mode="after")
    def _some_size(self) -> BatchSize:
        if self.global_batch is None and self.batch_per_rank is None:
            raise ValueError("has no size; give global_batch or batch_per_rank")
        return self

    def samples(self, ranks: int) -> int:
        """Return the global batch on `ranks` ranks; raises UserError when the two sizes do not agree there."""
        if self.batch_per_rank is None:
            assert self.global_batch is not None
            return self.global_batch
        samples = self.batch_per_rank * ranks
        if self.global_batch not in (None, samples):
            raise UserError(
                f"batch_per_rank {self.batch_per_rank} on {ranks} ranks is {samples} samples, but global_batch is "
                f"{self.global_batch}; leave one of them out, or use {self.global_batch} / {self.batch_per_rank} ranks"
            )
        return samples


class Rung(BatchSize):
    """A batch size from an epoch, or a number of samples, on."""

    epoch: Optional[NonNegativeFloat] = None
    seen: Optional[NonNegativeInt] = None

    @model_validator(mode="after")
    def _one_edge(self) -> Rung:
        if (self.epoch is None) == (self.seen is None):
            raise ValueError("needs epoch or seen (samples), one of them, to say when it begins")
        return self

    def begins(self, samples_per_epoch: int) -> float:
        """Return the samples after which this size is taken."""
        return self.seen if self.seen is not None else (self.epoch or 0) * samples_per_epoch


class BatchControl(BatchSize):
    """The first batch size, and the ladder by which it changes in mid-run."""

    ladder: tuple[Rung, ...] = ()


class WarmUp(_Section):
    """From `start` on a line to the base value, over the first `epochs`."""

    epochs: PositiveFloat
    start: NonNegativeFloat = 0.0


class _Piece(_Section):
    until: Optional[PositiveFloat] = None  # epoch at which the next piece begins; the run's end for the last


class Constant(_Piece):
    """Stay."""

    name: Literal["constant"]


class Polynomial(_Piece):
    """Go to `end` as (1 - progress)^power."""

    name: Literal["polynomial"]
    end: NonNegativeFloat = 0.0
    power: PositiveFloat = 1.0


class Cosine(_Piece):
    """Go to `end` on half a cosine wave."""

    name: Literal["cosine"]
    end: NonNegativeFloat = 0.0


class Step(_Piece):
    """Take values[i] from epoch at[i] on."""

    name: Literal["step"]
    at: tuple[NonNegativeFloat, ...]
    values: tuple[NonNegativeFloat, ...]

    @model_validator(mode="after")
    def _matching(self) -> Step:
        if len(self.at) != len(self.values) or list(self.at) != sorted(self.at):
            raise ValueError(f"has at {self.at} and values {self.values}; give ascending epochs and one value for each")
        return self


class Piecewise(_Piece):
    """Go on lines through [epoch, value] points."""

    name: Literal["piecewise"]
    points: tuple[tuple[NonNegativeFloat, NonNegativeFloat], ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ascending(self) -> Piecewise:
        epochs = [epoch for epoch, _ in self.points]
        if any(later <= earlier for earlier, later in zip(epochs, epochs[1:])):
            raise ValueError(f"has points at epochs {epochs}; they must ascend")
        return self


Piece = Annotated[Union[Constant, Polynomial, Cosine, Step, Piecewise], Field(discriminator="name")]


class Value(_Section):
    """A value over the run: a warm-up to `base`, then pieces one after the other, each from where the last one ended.

    Epochs are those of the run, the warm-up's included.
    """

    base: NonNegativeFloat
    warm_up: Optional[WarmUp] = None
    decay: Annotated[
        tuple[Piece, ...], BeforeValidator(lambda given: (given,) if isinstance(given, dict) else given)
    ] = ()

    @model_validator(mode="after")
    def _pieces_follow(self) -> Value:
        edges = [self.warm_up.epochs if self.warm_up else 0.0, *(piece.until or 0.0 for piece in self.decay[:-1])]
        if any(later <= earlier for earlier, later in zip(edges, edges[1:])):
            raise ValueError("has pieces of decay that do not follow each other; all but the last need ascending until")
        return self


Scheduled = Annotated[
    Value, BeforeValidator(lambda given: {"base": given} if isinstance(given, (int, float)) else given)
]


class _SolverSection(_Section):
    momentum: Scheduled = Value(base=0.9)
    weight_decay: NonNegativeFloat = 0.0  # of weights only

    @model_validator(mode="after")
    def _momentum_below_one(self) -> _SolverSection:
        if self.momentum.base >= 1:
            raise ValueError(f"has momentum {self.momentum.base}; it must be below 1")
        return self


class SgdSolver(_SolverSection):
    """SGD with momentum."""

    name: Literal["sgd"]


class NesterovSolver(_SolverSection):
    """SGD with Nesterov's momentum."""

    name: Literal["nesterov"]


class LarsSolver(_SolverSection):
    """LARS (You et al. 2017) for weights, SGD with momentum for biases and batch normalisation."""

    name: Literal["lars"]
    coefficient: PositiveFloat = 0.001
    eps: PositiveFloat = 1e-6


class Evaluation(_Section):
    """When the test set is gone through: every so many epochs, and at the end; `batch_per_rank` images at a time."""

    every: PositiveFloat = 1.0
    batch_per_rank: PositiveInt = 100


class Checkpointing(_Section):
    """When the run is saved: every so many epochs, and at the end; of the checkpoints the newest `keep` stay."""

    every: PositiveFloat = 1.0
    keep: PositiveInt = 2


class Config(_Section):
    """Everything that a run depends on, but for the ranks that mpirun starts."""

    epochs: PositiveInt
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    device: Literal["cpu", "cuda"] = "cpu"
    grid: Annotated[str, BeforeValidator(lambda given: str(given) if type(given) is int else given)] = "auto"
    algorithm: str = "torus"
    tuning: Optional[str] = None
    output: str
    data: Annotated[Union[DigitsData, ImageNetData], Field(discriminator="name")]
    model: Annotated[Union[ResNetModel, ImageNetResNetModel, AlexNetModel], Field(discriminator="name")]
    batch_size: BatchControl
    learning_rate: Scheduled
    solver: Annotated[Union[SgdSolver, NesterovSolver, LarsSolver], Field(discriminator="name")]
    evaluation: Evaluation = Evaluation()
    checkpoint: Checkpointing = Checkpointing()

    @model_validator(mode="after")
    def _network_fits_the_images(self) -> Config:
        if isinstance(self.model, ResNetModel):
            return self
        if isinstance(self.data, DigitsData):
            raise ValueError(f"has model.name {self.model.name} for the digits; it wants colour images, use resnet")
        if self.model.layout == "NHWC" and self.device == "cpu":
            raise ValueError("has model.layout NHWC with device cpu; nnabla computes it on a GPU only, use NCHW")
        if isinstance(self.model, AlexNetModel) and self.data.size < SMALLEST_FOR_ALEXNET:
            raise ValueError(f"has data.size {self.data.size}; AlexNet needs at least {SMALLEST_FOR_ALEXNET}")
        return self


def check(values: dict[str, Any]) -> Config:
    """Return the configuration that nested mappings describe; raises UserError."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise UserError(one_line(error, values, Config)) from None
