"""How well a network does on the test set: every sample counted exactly once, on any number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from nnabla_torus.data.source import DataSource
from nnabla_torus.training.graphs import Graphs
from nnabla_torus.training.statistics import Statistics


@dataclass(frozen=True)
class Evaluation:
    """`top1` is the share of samples whose highest logit is their label's; `loss` the mean cross entropy."""

    top1: float
    loss: float
    samples: int


def evaluate(graphs: Graphs, statistics: Statistics, source: DataSource, comm: MPI.Comm, batch: int) -> Evaluation:
    """Return the evaluation over all test samples, the same on every rank; every rank must call this.

    Ranks take neighbouring parts that differ by at most one sample. All go through one graph: a batch that
    is shorter leaves its last rows as they are, and what comes out of them is not counted. That is exact, since with
    running statistics a sample's logits do not depend on its batch.
    """
    rank, size, total = comm.Get_rank(), comm.Get_size(), source.test_samples
    graph = graphs.evaluation(min(batch, -(-total // size)))
    counted = np.zeros(3)  # samples, correct ones, sum of their losses
    with statistics.everybodys():
        for images, labels in source.test(total * rank // size, total * (rank + 1) // size, graph.images.shape[0]):
            rows = len(labels)
            graph.images.d[:rows] = images
            graph.labels.d[:rows, 0] = labels
            graph.losses.forward(clear_buffer=True)
            correct = graph.logits.d[:rows].argmax(axis=1) == labels
            counted += rows, correct.sum(), graph.losses.d[:rows].sum(dtype=np.float64)
    comm.Allreduce(MPI.IN_PLACE, counted)
    if counted[0] != total:
        raise RuntimeError(f"the test set has {total} samples but {int(counted[0])} were evaluated")
    return Evaluation(counted[1] / total, counted[2] / total, total)
