"""The all-reduces of a world of ranks: for each buffer the plan and the means that suit it.

This is the whole engine for code without nnabla: it sums numpy arrays, and whatever shows CPU memory through DLPack or
the buffer protocol, in place.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from mpi4py import MPI

from nnabla_torus.all_reduce import AllReduce, hosts_of
from nnabla_torus.collectives import Start
from nnabla_torus.collectives.memory import Memory
from nnabla_torus.failure import UserError
from nnabla_torus.grid import parse_grid, ranks_per_host
from nnabla_torus.plan import make_plan
from nnabla_torus.tuning import CHOOSING, Choice, Table, fastest, read_table, untuned


class Engine:
    """Sums buffers over all ranks of `comm`; every rank makes one with equal arguments and calls its methods likewise.

    `algorithm` is a plan's name, or "auto" or "hybrid", which choose by size from the table in the file `tuning`.
    `grid` is "auto" or lengths as in "2x3". Raises UserError for what is unknown or does not fit the ranks.
    """

    def __init__(
        self, comm: MPI.Comm, algorithm: str = "torus", grid: str = "auto", tuning: Path | None = None
    ) -> None:
        self.comm: MPI.Comm = comm.Dup()
        self.algorithm = algorithm
        self.ranks_per_host = ranks_per_host(hosts_of(comm))
        self.grid = parse_grid(grid, comm.Get_size(), self.ranks_per_host)
        self._table = _one_table(comm, tuning) if tuning else Table()
        if algorithm not in CHOOSING:
            make_plan(algorithm, self.grid)  # what is unknown or does not fit is told now
        self._runners: dict[Choice, AllReduce] = {}
        self._memories: list[Memory] = []

    def choose(self, size: int) -> Choice:
        """Return what a buffer of `size` bytes takes."""
        if self.algorithm not in CHOOSING:
            return Choice(self.algorithm)
        candidates = CHOOSING[self.algorithm]
        if len(self.grid.shape) != 2:
            candidates = [name for name in candidates if name not in ("torus", "hierarchical", "mesh")] or candidates
        tuned = fastest(self._table, self.ranks_per_host, size, candidates, self.grid)
        return tuned or untuned(self.ranks_per_host, candidates)

    def share(self, memory: Memory) -> None:
        """Make buffers that lie in `memory` summed where they are; every rank brings memory of the same size."""
        self._memories.append(memory)

    def prepare(self, buffer: np.ndarray) -> Start:
        """Return the all-reduce of a flat, contiguous buffer, to be started any number of times."""
        runner = self._runner(self.choose(buffer.nbytes))
        for memory in self._memories:
            if memory.holds(buffer):
                runner.open(memory)
        return runner.prepare(buffer)

    def all_reduce(self, array: object) -> None:
        """Sum an array in place, once: a contiguous numpy array, or what has `__dlpack__` or the buffer protocol.

        Nothing is compared between ranks: all must bring the same length and dtype.
        """
        self.prepare(flat_view(array))()

    def close(self) -> None:
        """Free everything; every rank must."""
        for runner in self._runners.values():
            runner.close()
        for memory in self._memories:
            memory.close()
        self._runners.clear()
        self._memories.clear()
        self.comm.Free()

    def _runner(self, choice: Choice) -> AllReduce:
        if choice not in self._runners:
            self._runners[choice] = AllReduce(make_plan(choice.algorithm, self.grid), self.comm, choice.means)
        return self._runners[choice]


def _one_table(comm: MPI.Comm, tuning: Path) -> Table:
    """Return rank 0's table on all ranks: hosts with different files would choose differently and wait for ever."""
    table, fault = Table(), ""
    if comm.Get_rank() == 0:
        try:
            table = read_table(tuning)
        except UserError as error:
            fault = str(error)
    table, fault = comm.bcast((table, fault))
    if fault:
        raise UserError(fault)
    return table


def flat_view(array: object) -> np.ndarray:
    """Return the memory of a contiguous CPU array as a flat numpy view.

    Raises ValueError for one that is not contiguous, not writable, or not in the CPU's memory.
    """
    view: np.ndarray
    if isinstance(array, np.ndarray):
        view = array
    elif hasattr(array, "__dlpack__"):
        try:
            view = _writable(np.from_dlpack(array))
        except (BufferError, RuntimeError) as error:
            raise ValueError(f"an array cannot be reached through DLPack: {error}") from None
    else:
        view = np.asarray(memoryview(array))  # type: ignore[arg-type]
    if not view.flags.c_contiguous:
        raise ValueError("an all-reduce in place needs a contiguous array; make a contiguous copy first")
    if not view.flags.writeable:
        raise ValueError("an all-reduce in place needs a writable array")
    return view.reshape(-1)


def _writable(view: np.ndarray) -> np.ndarray:
    """Return the same memory for writing; numpy 1 marks every array that comes through DLPack read-only."""
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0" or not view.flags.c_contiguous:
        return view
    block = (ctypes.c_ubyte * view.nbytes).from_address(view.ctypes.data)
    block.owner = view  # type: ignore[attr-defined]  # the memory lives as long as a view on it
    return np.frombuffer(block, view.dtype).reshape(view.shape)  # type: ignore[call-overload]
