"""A network's parameters, and its graphs: one for each number of samples, built when first needed and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import nnabla as nn
import nnabla.functions as F

# Logits of (n, classes) for images of (n, ...); whether it is called for training comes second.
Network = Callable[[nn.Variable, bool], nn.Variable]


@dataclass(frozen=True)
class TrainingGraph:
    """`loss` is the sum over samples of cross entropy times `scale`, one number for the whole step."""

    images: nn.Variable
    labels: nn.Variable
    scale: nn.Variable
    loss: nn.Variable


@dataclass(frozen=True)
class EvaluationGraph:
    """`logits` of (n, classes) and `losses`, the cross entropy of each sample, of (n, 1)."""

    images: nn.Variable
    labels: nn.Variable
    logits: nn.Variable
    losses: nn.Variable


class Graphs:
    """A network with parameters of its own, for images of `image_shape`, in nnabla's current context."""

    def __init__(self, network: Network, image_shape: tuple[int, ...]) -> None:
        self._network = network
        self._image_shape = image_shape
        self._scope: OrderedDict[str, object] = OrderedDict()
        self._training: dict[int, TrainingGraph] = {}
        self._evaluation: dict[int, EvaluationGraph] = {}
        self._build(1, train=False)  # any number of samples makes the parameters
        with nn.parameter_scope("", self._scope):
            self.parameters: dict[str, nn.Variable] = nn.get_parameters(grad_only=False)

    @property
    def trainable(self) -> dict[str, nn.Variable]:
        """What the solver changes, by name."""
        return {name: parameter for name, parameter in self.parameters.items() if parameter.need_grad}

    def training(self, samples: int) -> TrainingGraph:
        """Return the graph that trains on so many samples."""
        if samples not in self._training:
            images, labels, logits = self._build(samples, train=True)
            scale = nn.Variable(())
            loss = F.sum(F.softmax_cross_entropy(logits, labels)) * scale
            loss.persistent = True  # it is read after backward has cleared what it no longer needs
            self._training[samples] = TrainingGraph(images, labels, scale, loss)
        return self._training[samples]

    def evaluation(self, samples: int) -> EvaluationGraph:
        """Return the graph that evaluates so many samples, with the running statistics of batch normalisation."""
        if samples not in self._evaluation:
            with nn.no_grad():
                images, labels, logits = self._build(samples, train=False)
                logits.persistent = True
                losses = F.softmax_cross_entropy(logits, labels)
            self._evaluation[samples] = EvaluationGraph(images, labels, logits, losses)
        return self._evaluation[samples]

    def _build(self, samples: int, train: bool) -> tuple[nn.Variable, nn.Variable, nn.Variable]:
        images = nn.Variable((samples, *self._image_shape))
        with nn.parameter_scope("", self._scope):
            return images, nn.Variable((samples, 1)), self._network(images, train)
