"""A group's collectives by the MPI library's own, through mpi4py."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives import Pieces, Start


class MpiCollectives:
    """Collectives of the ranks of one MPI communicator, which must be this object's alone."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def reduce_scatter(self, view: np.ndarray, pieces: Pieces) -> Start:
        """MPI_Reduce_scatter; it cannot leave a piece in its place, so one's own is received beside and copied."""
        counts = [stop - start for start, stop in pieces]
        own = view[slice(*pieces[self.rank])]
        received = np.empty_like(own)

        def start() -> None:
            self.comm.Reduce_scatter(view, received, counts, MPI.SUM)
            own[:] = received

        return start

    def all_gather(self, view: np.ndarray, pieces: Pieces) -> Start:
        """MPI_Allgatherv in place."""
        counts = [stop - start for start, stop in pieces]
        displacements = [start for start, _ in pieces]
        return lambda: self.comm.Allgatherv(MPI.IN_PLACE, [view, counts, displacements, None])

    def all_reduce(self, view: np.ndarray) -> Start:
        """MPI_Allreduce in place."""
        return lambda: self.comm.Allreduce(MPI.IN_PLACE, view, MPI.SUM)

    def reduce(self, view: np.ndarray) -> Start:
        """MPI_Reduce, in place at the root."""
        if self.rank == 0:
            return lambda: self.comm.Reduce(MPI.IN_PLACE, view, MPI.SUM, root=0)
        return lambda: self.comm.Reduce(view, None, MPI.SUM, root=0)

    def broadcast(self, view: np.ndarray) -> Start:
        """MPI_Bcast."""
        return lambda: self.comm.Bcast(view, root=0)

    def close(self) -> None:
        """Free the communicator."""
        self.comm.Free()
