"""Fails in a given way on given ranks, while the others wait for them."""

import sys

from mpi4py import MPI

from nnabla_torus.failure import UserError, ending_all_ranks

kind, *ranks = sys.argv[1:]
rank = MPI.COMM_WORLD.Get_rank()
with ending_all_ranks():
    if str(rank) in ranks:
        if kind == "mistake":
            raise UserError(f"wrong on rank {rank}")
        raise ZeroDivisionError(f"broken on rank {rank}")
    MPI.COMM_WORLD.Barrier()
