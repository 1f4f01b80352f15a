"""Buffers that ranks share: nnabla's own memory exchanged, refusals that all ranks take alike, and every way to end."""

import os
import sys

import nnabla as nn
import numpy as np
from mpi4py import MPI

from nnabla_torus.all_reduce import AllReduce
from nnabla_torus.collectives import memory
from nnabla_torus.collectives.memory import Memory, MemoryUnavailable, map_peers
from nnabla_torus.communicators import create_communicator
from nnabla_torus.grid import Grid
from nnabla_torus.plan import make_plan

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()


def permissions(address):
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, stop = (int(edge, 16) for edge in line.split()[0].split("-"))
            if start <= address < stop:
                return line.split()[1]
    raise AssertionError("unmapped")


def values(rank, count):
    return ((np.arange(count) * 3 + rank * 5) % 23).astype("float32")


def shared():
    comm = create_communicator(nn.get_current_context(), algorithm="torus")
    for count in (1, 1023, 1024, 1025, 70001):
        buffer = comm.allocate(count, np.dtype("float32"))
        assert not comm.why_not_shared
        address = buffer.data.ctypes.data
        for at in (0, count // 2, count - 1):
            assert permissions(address + 4 * at) == "rw-s"
        start = comm.prepare(buffer)
        for _ in range(2):
            buffer.data[...] = values(RANK, count)
            start()
            np.testing.assert_array_equal(buffer.data, sum(values(rank, count) for rank in range(SIZE)))
            assert buffer.data.ctypes.data == address
    kept = buffer.data.copy()
    WORLD.Barrier()
    comm.close()
    assert permissions(address) == "rw-p"
    np.testing.assert_array_equal(buffer.data, kept)
    # What nnabla frees it hands out again; nobody else may see it now.
    del buffer, comm
    again = [nn.NdArray((70001,)) for _ in range(8)]
    for each in again:
        each.data[...] = RANK
    WORLD.Barrier()
    assert all((each.data == RANK).all() for each in again)
    moved = create_communicator(nn.get_current_context())
    plain = nn.NdArray((10,))
    plain.data[...] = 1
    start = moved.prepare(plain)
    held = plain.data  # keeps the old block taken, so that a new one must lie elsewhere
    plain.zero()
    plain.data[...] = 1
    try:
        start()
    except RuntimeError as error:
        assert "moved" in str(error)
    else:
        assert plain.data.ctypes.data == held.ctypes.data


def refused():
    if RANK == 1:

        def refuse(nbytes):
            raise MemoryUnavailable("refused for the test")

        memory._make_file = refuse
    all_reduce = AllReduce(make_plan("ring", Grid((SIZE,))), WORLD)
    assert all_reduce.why_not_shared == "refused for the test", all_reduce.why_not_shared
    buffer = values(RANK, 1000)
    all_reduce(buffer)
    np.testing.assert_array_equal(buffer, sum(values(rank, 1000) for rank in range(SIZE)))
    comm = create_communicator(nn.get_current_context())
    flat = comm.allocate(1000, np.dtype("float32"))
    flat.data[...] = values(RANK, 1000)
    comm.prepare(flat)()
    np.testing.assert_array_equal(flat.data, sum(values(rank, 1000) for rank in range(SIZE)))


def impostor():
    offered = Memory(4096)
    if RANK == 1:  # offers one file, but holds another
        offered.file = os.memfd_create("impostor")
        os.ftruncate(offered.file, 4096)
    try:
        map_peers(WORLD, offered)
    except MemoryUnavailable as reason:
        assert "member 1 is not the one it offered" in str(reason)
    else:
        raise AssertionError("pages that are not shared were taken for shared")


def hold(ending):
    comm = create_communicator(nn.get_current_context())
    buffer = comm.allocate(100_000, np.dtype("float32"))
    comm.prepare(buffer)()
    print(os.getpid(), flush=True)
    if ending == "kill":
        WORLD.Barrier()
        while True:
            buffer.data[...] = 1
            comm.prepare(buffer)()
    if ending == "error" and RANK == 1:
        MPI.COMM_WORLD.Abort(1)
    WORLD.Barrier()


nn.logger.setLevel("WARNING")
{"shared": shared, "refused": refused, "impostor": impostor, "hold": hold}[sys.argv[1]](*sys.argv[2:])
