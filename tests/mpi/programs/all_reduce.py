"""Sums awkward buffers with every plan on every grid of these ranks, against numpy's sum of all ranks' inputs."""

import numpy as np
from mpi4py import MPI

from nnabla_torus.all_reduce import AllReduce
from nnabla_torus.grid import Grid
from nnabla_torus.plan import ALGORITHMS, make_plan


def shapes(size):
    """All grids of `size` ranks without axes of length 1, and those of two axes with."""
    found = {(size,), (1, size), (size, 1)}
    for first in range(2, size):
        if size % first == 0:
            found |= {(first, *rest) for rest in shapes(size // first) if 1 not in rest}
    return sorted(found)


def values(rank, count, dtype):
    """Differ by rank and by element; small whole numbers, so that every order of adding gives the same sum."""
    return ((np.arange(count) * 7 + rank * 13) % 31 - 11).astype(dtype)


def main():
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    counts = sorted({0, 1, size - 1, size, size + 1, 2 * size, 97, 1009})
    runs = 0
    for shape in shapes(size):
        for algorithm in ALGORITHMS:
            if algorithm in ("torus", "hierarchical", "mesh") and len(shape) != 2:
                continue
            all_reduce = AllReduce(make_plan(algorithm, Grid(shape)), comm)
            for count in counts:
                for dtype in ("float32", "float64", "float16", "int64"):
                    buffer = values(rank, count, dtype)
                    expected = sum(values(other, count, "int64") for other in range(size))
                    start = all_reduce.prepare(buffer)
                    start()
                    np.testing.assert_array_equal(
                        buffer, expected.astype(dtype), f"{algorithm} {shape} {count} {dtype}"
                    )
                    start()  # prepared once, started again
                    np.testing.assert_array_equal(buffer, (size * expected).astype(dtype))
                    runs += 1
            rounded = np.random.default_rng(rank).standard_normal(1009).astype("float32")
            all_reduce(rounded)
            assert len(set(comm.allgather(rounded.tobytes()))) == 1, f"{algorithm} {shape} differs between ranks"
            all_reduce.close()
    if rank == 0:
        print(runs, "sums")


main()
