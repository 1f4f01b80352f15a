"""Running statistics of batch normalisation, which every rank gathers from its own samples.

They are never mixed into training. What is combined over ranks, for evaluation and for others to use, is a copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import nnabla as nn
import numpy as np
from mpi4py import MPI


class Statistics:
    """The means and variances among a network's parameters, flat: all means, then all variances, float32 of (n,)."""

    def __init__(self, parameters: Mapping[str, nn.Variable], comm: MPI.Comm) -> None:
        means = [name for name in parameters if name.endswith("/bn/mean")]
        self.names = [*means, *(name[: -len("mean")] + "var" for name in means)]
        self._variables = [parameters[name] for name in self.names]
        self._comm = comm
        self.count = sum(variable.size for variable in self._variables)

    def own(self) -> np.ndarray:
        """Return a copy of this rank's."""
        return np.concatenate([np.empty(0, np.float32), *(variable.d.reshape(-1) for variable in self._variables)])

    def set(self, flat: np.ndarray) -> None:
        """Write this rank's."""
        for variable, part in zip(self._variables, self.by_name(flat).values()):
            variable.d = part

    def by_name(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """Return such an array's parts, in their shapes, by the names of the parameters."""
        ends = np.cumsum([variable.size for variable in self._variables])
        parts = np.split(flat, ends[:-1])
        return {name: part.reshape(variable.shape) for name, part, variable in zip(self.names, parts, self._variables)}

    def combined(self) -> np.ndarray:
        """Return those of all ranks' samples together, by the law of total variance; every rank must call this."""
        mean, variance = np.split(self.own().astype(np.float64), 2)
        total_mean = self._average(mean)
        total_variance = self._average(variance + (mean - total_mean) ** 2)
        return np.concatenate([total_mean, total_variance]).astype(np.float32)

    def _average(self, values: np.ndarray) -> np.ndarray:
        total = np.empty_like(values)
        self._comm.Allreduce(values, total)
        return total / self._comm.Get_size()

    def gathered(self) -> np.ndarray | None:
        """Return all ranks', (ranks, n), on rank 0, and None on the others; every rank must call this."""
        rows = np.empty((self._comm.Get_size(), self.count), np.float32) if self._comm.Get_rank() == 0 else None
        self._comm.Gather(self.own(), rows)
        return rows

    def scatter(self, rows: np.ndarray | None) -> None:
        """Write each rank's from what `gathered` returned on rank 0; every rank must call this."""
        own = np.empty(self.count, np.float32)
        self._comm.Scatter(rows, own)
        self.set(own)

    @contextlib.contextmanager
    def everybodys(self) -> Iterator[None]:
        """Have the combined ones in the network for a while, then this rank's own again; every rank must call this."""
        own = self.own()
        self.set(self.combined())
        try:
            yield
        finally:
            self.set(own)
