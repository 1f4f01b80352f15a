"""The training loop, the same for one rank and for thousands."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence

import nnabla as nn
import numpy as np
from mpi4py import MPI

from nnabla_torus.communicators.mpi import MpiCommunicator
from nnabla_torus.data.source import Batch, DataSource, TrainReader
from nnabla_torus.data.stream import SampleStream
from nnabla_torus.gradients import GradientExchange
from nnabla_torus.schedules.value import Schedule
from nnabla_torus.training.callbacks import Callback
from nnabla_torus.training.evaluation import Evaluation, evaluate
from nnabla_torus.training.graphs import Graphs, Network
from nnabla_torus.training.solver import Recipe, Solver
from nnabla_torus.training.statistics import Statistics


class Trainer:
    """Trains a network on this rank's part of every global batch.

        before_training
        while seen < total:
            before_step             a controller may set batch_size
                read this rank's part of the next batch_size samples
                forward             loss = sum over the part / global batch, so that gradients only add
                backward            and the sum of gradients over ranks
                update              with the rate and momentum at `seen`
            after_step              step, seen, loss and the times are those of this step
        after_training

    Every callback is called on its rank in the order in which it was given, and hears of every event that anybody
    emits. `step` counts steps, `seen` the samples of the stream that they took, of all ranks together.
    """

    def __init__(
        self,
        communicator: MpiCommunicator,
        source: DataSource,
        network: Network,
        recipe: Recipe,
        learning_rate: Schedule,
        momentum: Schedule,
        epochs: int,
        seed: int,
        callbacks: Sequence[Callback],
    ) -> None:
        self.communicator = communicator
        self.source = source
        self.graphs = Graphs(network, source.image_shape)
        communicator.bcast([parameter.data for parameter in self.graphs.parameters.values()], 0)
        self.statistics = Statistics(self.graphs.parameters, communicator.mpi)
        self.exchange = GradientExchange(communicator, self.graphs.trainable)
        self.solver = Solver(self.graphs.trainable, recipe)
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.seed = seed
        self.callbacks = list(callbacks)
        self.samples_per_epoch = source.train_samples
        self.total = epochs * source.train_samples
        self.step = 0
        self.seen = 0
        self.taken = 0  # samples of the last step, on all ranks together
        self.loss = float("nan")
        self.seconds = 0.0  # of the last step
        self.data_seconds = 0.0  # of these, waiting for data
        self.evaluation: Evaluation | None = None
        self._batch_size = 0
        self._earlier_seconds = 0.0
        self._begin = time.perf_counter()

    @property
    def batch_size(self) -> int:
        """Samples of the next step, on all ranks together."""
        return self._batch_size

    @batch_size.setter
    def batch_size(self, samples: int) -> None:
        if samples < 1:
            raise ValueError(f"batch size {samples} leaves nothing to train on; it must be at least 1")
        if samples != self._batch_size:
            self._batch_size = samples
            self.emit("batch_size", batch_size=samples)

    @property
    def epoch(self) -> float:
        """Epochs behind, with their fraction."""
        return self.seen / self.samples_per_epoch

    @property
    def finished(self) -> bool:
        """Whether every sample of every epoch was trained on."""
        return self.seen >= self.total

    @property
    def elapsed(self) -> float:
        """Seconds that the run has taken, those before it was resumed included."""
        return self._earlier_seconds + time.perf_counter() - self._begin

    def stand(self, step: int, seen: int, batch_size: int, seconds: float) -> None:
        """Stand where an earlier process stood."""
        self.step, self.seen, self._batch_size, self._earlier_seconds = step, seen, batch_size, seconds

    def passed(self, epochs: float) -> bool:
        """Return whether the last step reached a multiple of so many epochs, or the end."""
        every = epochs * self.samples_per_epoch
        return self.finished or self.seen // every > (self.seen - self.taken) // every

    def emit(self, event: str, **fields: object) -> None:
        """Tell all callbacks of this rank what happened, with where the run stands."""
        for callback in self.callbacks:
            callback.on_event(self, event, {"step": self.step, "seen": self.seen, "epoch": self.epoch, **fields})

    def train(self) -> None:
        """Train to the end, from where the run stands."""
        stream = SampleStream(self.samples_per_epoch, self.seed, self.communicator.rank, self.communicator.size)
        reader = self.source.train(stream, self.seen)
        try:
            self._begin = time.perf_counter()
            self._call("before_training")
            while not self.finished:
                self._call("before_step")
                self._take_step(reader)
                self._call("after_step")
            self._call("after_training")
        finally:
            reader.close()

    def evaluate(self, batch: int) -> Evaluation:
        """Evaluate on the test set, `batch` samples at a time on each rank; every rank must call this."""
        self.evaluation = evaluate(self.graphs, self.statistics, self.source, self.communicator.mpi, batch)
        self.emit("evaluation", top1=self.evaluation.top1, loss=self.evaluation.loss, samples=self.evaluation.samples)
        return self.evaluation

    def _call(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self)

    def _take_step(self, reader: TrainReader) -> None:
        begin = time.perf_counter()
        self.taken = min(self.batch_size, self.total - self.seen)
        batch = reader.read(self.seen + self.taken)
        self.data_seconds = time.perf_counter() - begin
        # Functions such as dropout then draw what follows from the seed, the step and the rank, in a resumed run too.
        nn.random.set_function_seed(_mixed(self.seed, self.step, self.communicator.rank))
        loss = self._forward(batch)
        self.exchange.backward(loss)
        learning_rate, momentum = self.learning_rate(self.seen), self.momentum(self.seen)
        self.solver.update(learning_rate, momentum)
        self.loss = self._summed(0.0 if loss is None else float(loss.d))
        self.step += 1
        self.seen += self.taken
        self.seconds = time.perf_counter() - begin
        self.emit(
            "step",
            loss=self.loss,
            batch_size=self.taken,
            learning_rate=learning_rate,
            momentum=momentum,
            seconds=self.seconds,
            data_seconds=self.data_seconds,
        )

    def _forward(self, batch: Batch) -> nn.Variable | None:
        """Return this rank's part of the loss, None when it has no sample in this step."""
        samples = len(batch.labels)
        if samples == 0:
            return None
        graph = self.graphs.training(samples)
        graph.images.d = batch.images
        graph.labels.d = batch.labels[:, np.newaxis]
        graph.scale.d = 1 / self.taken
        graph.loss.forward(clear_no_need_grad=True)
        return graph.loss

    def _summed(self, value: float) -> float:
        total = np.array(value)
        self.communicator.mpi.Allreduce(MPI.IN_PLACE, total)
        return float(total)


def _mixed(*numbers: int) -> int:
    """Return 31 bits, as nnabla takes them, that follow from the numbers."""
    return zlib.crc32(repr(numbers).encode()) >> 1
