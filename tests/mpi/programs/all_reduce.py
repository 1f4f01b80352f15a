"""Sums awkward buffers with every plan, grid and means of these ranks, against numpy's sum of all ranks' inputs."""

import numpy as np
from mpi4py import MPI

from nnabla_torus.all_reduce import AllReduce
from nnabla_torus.collectives import mpi, shared_memory, steps
from nnabla_torus.collectives.memory import Memory
from nnabla_torus.grid import Grid
from nnabla_torus.means import MESSAGES, Means
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


def sum_and_check(all_reduce, buffer, expected, name):
    start = all_reduce.prepare(buffer)
    np.testing.assert_array_equal(started(start, buffer), expected.astype(buffer.dtype), name)
    again = MPI.COMM_WORLD.Get_size() * expected  # prepared once, started again
    np.testing.assert_array_equal(started(start, buffer), again.astype(buffer.dtype), name)


def started(start, buffer):
    start()
    return buffer


def main():
    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    counts = sorted({0, 1, size - 1, size, size + 1, 2 * size, 97, 1009})
    # Small enough that these counts make several blocks, chunks and parts.
    shared_memory.BLOCK_B, steps.CHUNK_B, mpi.LARGEST_COUNT = 64, 96, 512
    runs = 0
    for shape in shapes(size):
        for algorithm in ALGORITHMS:
            if algorithm in ("torus", "hierarchical", "mesh") and len(shape) != 2:
                continue
            # Messages: together these three plans use every collective of a group.
            others = MESSAGES if algorithm in ("ring", "torus", "hierarchical") else ()
            for means in (Means(), *map(Means, others)):
                all_reduce = AllReduce(make_plan(algorithm, Grid(shape)), comm, means)
                assert not all_reduce.why_not_shared
                memory = Memory(1009 * 8 + 64)
                all_reduce.open(memory)
                for count in counts:
                    expected = sum(values(other, count, "int64") for other in range(size))
                    for dtype in ("float32", "float16", "int64") if count == 97 else ("float32",):
                        name = f"{algorithm} {shape} {count} {dtype} {means}"
                        sum_and_check(all_reduce, values(rank, count, dtype), expected, name)  # through a window
                        shared = memory.array[64 : 64 + count * np.dtype(dtype).itemsize].view(dtype)
                        shared[:] = values(rank, count, dtype)
                        sum_and_check(all_reduce, shared, expected, name)  # where it is
                        runs += 1
                rounded = np.random.default_rng(rank).standard_normal(1009).astype("float32")
                all_reduce(rounded)
                assert len(set(comm.allgather(rounded.tobytes()))) == 1, f"{algorithm} {shape} differs between ranks"
                all_reduce.close()
                memory.close()
    if rank == 0:
        print(runs, "sums")


main()
