"""A group's collectives by the MPI library's own, through mpi4py."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives import Pieces, Start

# MPI counts are 32-bit: longer buffers go in pieces of this many elements.
LARGEST_COUNT = 2**30


class MpiCollectives:
    """Collectives of the ranks of one MPI communicator, which must be this object's alone."""

    one_pass = False

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def reduce_scatter(self, view: np.ndarray, pieces: Pieces) -> Start:
        """MPI_Reduce_scatter; it cannot leave a piece in its place, so one's own is received beside and copied."""
        if len(view) > LARGEST_COUNT:
            return _one_after_another(
                [
                    self._reduce_to(member, part)
                    for member, piece in enumerate(pieces)
                    for part in parts(view[slice(*piece)])
                ]
            )
        counts = [stop - start for start, stop in pieces]
        own = view[slice(*pieces[self.rank])]
        received = np.empty_like(own)

        def start() -> None:
            self.comm.Reduce_scatter(view, received, counts, MPI.SUM)
            own[:] = received

        return start

    def all_gather(self, view: np.ndarray, pieces: Pieces) -> Start:
        """MPI_Allgatherv in place."""
        if len(view) > LARGEST_COUNT:
            return _one_after_another(
                [
                    self._copy_from(member, part)
                    for member, piece in enumerate(pieces)
                    for part in parts(view[slice(*piece)])
                ]
            )
        counts = [stop - start for start, stop in pieces]
        displacements = [start for start, _ in pieces]
        return lambda: self.comm.Allgatherv(MPI.IN_PLACE, [view, counts, displacements, None])

    def all_reduce(self, view: np.ndarray) -> Start:
        """MPI_Allreduce in place."""

        def of(part: np.ndarray) -> Start:
            return lambda: self.comm.Allreduce(MPI.IN_PLACE, part, MPI.SUM)

        return _one_after_another([of(part) for part in parts(view)])

    def reduce(self, view: np.ndarray) -> Start:
        """MPI_Reduce, in place at the root."""
        return _one_after_another([self._reduce_to(0, part) for part in parts(view)])

    def broadcast(self, view: np.ndarray) -> Start:
        """MPI_Bcast."""
        return _one_after_another([self._copy_from(0, part) for part in parts(view)])

    def close(self) -> None:
        """Free the communicator."""
        self.comm.Free()

    def _reduce_to(self, root: int, part: np.ndarray) -> Start:
        if self.rank == root:
            return lambda: self.comm.Reduce(MPI.IN_PLACE, part, MPI.SUM, root=root)
        return lambda: self.comm.Reduce(part, None, MPI.SUM, root=root)

    def _copy_from(self, root: int, part: np.ndarray) -> Start:
        return lambda: self.comm.Bcast(part, root=root)


def parts(view: np.ndarray) -> list[np.ndarray]:
    """Cut a view into parts that MPI can count; one part, even of nothing, where it can."""
    return [view[at : at + LARGEST_COUNT] for at in range(0, max(len(view), 1), LARGEST_COUNT)]


def _one_after_another(starts: list[Start]) -> Start:
    if len(starts) == 1:
        return starts[0]

    def start() -> None:
        for each in starts:
            each()

    return start
