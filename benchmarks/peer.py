"""One rank of a contestant of `peers.py`: sums a buffer whenever it is told to, and tells how long it took."""

from __future__ import annotations

import os
import socket
import sys
import time

import numpy as np


def ours(count: int, grid: str):
    """nnabla's arrays through our communicator, by choice and by the torus, and what they are held against."""
    import nnabla as nn
    from mpi4py import MPI

    from nnabla_torus.all_reduce import AllReduce
    from nnabla_torus.communicators import create_communicator
    from nnabla_torus.means import Means
    from nnabla_torus.plan import make_plan

    nn.logger.setLevel("WARNING")
    comm = MPI.COMM_WORLD
    starts = {}
    for algorithm in ("auto", "torus"):
        communicator = create_communicator(nn.get_current_context(), algorithm, grid)
        buffer = communicator.allocate(count, np.dtype(np.float32))
        starts[algorithm] = communicator.prepare(buffer)
        check(starts[algorithm], buffer.data, comm.Get_rank(), comm.Get_size())
    source, target = np.ones(count, np.float32), np.ones(count, np.float32)
    starts["copy"] = lambda: np.copyto(target, source)
    messages = AllReduce(make_plan("ring", communicator.grid), comm, Means("ring", "ring"))
    starts["ring"] = messages.prepare(np.zeros(count, np.float32))
    return comm.Get_rank(), comm.Barrier, starts


def mpi(count: int, _: str):
    """MPI_Allreduce in place."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    buffer = np.zeros(count, np.float32)
    start = lambda: comm.Allreduce(MPI.IN_PLACE, buffer, MPI.SUM)  # noqa: E731
    check(start, buffer, comm.Get_rank(), comm.Get_size())
    return comm.Get_rank(), comm.Barrier, {"all_reduce": start}


def gloo(count: int, _: str):
    """torch.distributed's all_reduce on CPU tensors."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    tensor = torch.zeros(count)
    check(lambda: distributed.all_reduce(tensor), tensor.numpy(), distributed.get_rank(), distributed.get_world_size())
    return distributed.get_rank(), distributed.barrier, {"all_reduce": lambda: distributed.all_reduce(tensor)}


def horovod(count: int, _: str):
    """Horovod's all-reduce."""
    import horovod.torch as hvd
    import torch

    hvd.init()
    tensor = torch.zeros(count)
    return hvd.rank(), hvd.barrier, {"all_reduce": lambda: hvd.allreduce_(tensor, op=hvd.Sum)}


def check(start, buffer: np.ndarray, rank: int, size: int) -> None:
    """See that it sums, and leave zeros, whose sums never overflow."""
    buffer[:] = np.arange(len(buffer)) % 5 + rank
    start()
    expected = np.arange(len(buffer)) % 5 * size + size * (size - 1) // 2
    assert np.array_equal(buffer, expected.astype(np.float32)), "the sum is wrong"
    buffer[:] = 0


def spawn(ranks: int, arguments: list[str]) -> None:
    """Start `ranks` processes with torch's environment and wait for them."""
    import subprocess

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    processes = [
        subprocess.Popen([sys.executable, __file__, *arguments], env={**os.environ, **world, "RANK": str(rank)})
        for rank in range(ranks)
    ]
    sys.exit(max(process.wait() for process in processes))


def main() -> None:
    if sys.argv[1] == "spawn":
        spawn(int(sys.argv[2]), sys.argv[3:])
    name, size, grid, address = sys.argv[1:]
    make = {"ours": ours, "gloo": gloo, "horovod": horovod}.get(name, mpi)
    _, barrier, starts = make(int(size) // 4, grid)
    host, port = address.split(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as stream:
        for told in stream:  # asleep in a read between turns
            start = starts[told.strip()]
            barrier()
            begin = time.perf_counter()
            start()
            stream.write(f"{time.perf_counter() - begin}\n")
            stream.flush()
    os._exit(0)  # some libraries wait for each other at the end


if __name__ == "__main__":
    main()
