"""nnabla's Communicator interface, with a world all-reduce that runs a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nnabla_torus.failure import UserError

if TYPE_CHECKING:
    import nnabla as nn
    from mpi4py import MPI

    from nnabla_torus.communicators.mpi import MpiCommunicator


def create_communicator(
    ctx: nn.Context,
    algorithm: str = "torus",
    grid: str = "auto",
    comm: MPI.Comm | None = None,
    tuning: str | Path | None = None,
) -> MpiCommunicator:
    """Return a communicator for arrays of the context `ctx`; every rank of `comm` (the world) must call this.

    Its `all_reduce` over the world runs `algorithm` on `grid` ("auto", or lengths as in "2x3"); every other method is
    that of nnabla's communicators, and nothing needs `init()`. The algorithms "auto" and "hybrid" choose by size, from
    the table in the file `tuning` where given. Raises UserError for an unknown algorithm, a grid that does not fit the
    ranks, a file that is no table, or a context that is not on the CPU.
    """
    if not all(backend.startswith("cpu") for backend in ctx.backend):
        raise UserError(f"context {ctx.backend} is not on the CPU; use nnabla's 'cpu' context")
    from mpi4py import MPI

    from nnabla_torus.communicators.mpi import MpiCommunicator

    return MpiCommunicator(comm or MPI.COMM_WORLD, algorithm, grid, Path(tuning) if tuning else None)
