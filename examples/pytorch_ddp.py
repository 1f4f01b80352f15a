"""PyTorch's DistributedDataParallel with our all-reduce as its communication hook, beside gloo's.

    mpirun -n 2 python examples/pytorch_ddp.py

The same network is trained twice from the same weights on the same batches. The losses must agree to rounding.
"""

import os
import socket
import time

import torch
import torch.distributed
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel

from nnabla_torus.engine import Engine
from nnabla_torus.failure import ending_all_ranks

STEPS, BATCH, WIDTH = 20, 32, 1024


def train(engine: Engine | None) -> tuple[list[float], float]:
    """Return the losses over all ranks and the seconds of a run; without an engine gloo sums the gradients."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 10)))
    if engine is not None:
        model.register_comm_hook(engine, sum_with)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    random = torch.Generator().manual_seed(MPI.COMM_WORLD.Get_rank())
    losses, begin = [], time.perf_counter()
    for _ in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=random)
        loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(MPI.COMM_WORLD.allreduce(loss.item()) / MPI.COMM_WORLD.Get_size())
    return losses, time.perf_counter() - begin


def sum_with(engine: Engine, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket of gradients where it lies, and average as DistributedDataParallel does."""
    gradients = bucket.buffer()
    engine.all_reduce(gradients)
    gradients.div_(engine.comm.Get_size())
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(gradients)
    return done


def main() -> None:
    """Train with both and compare."""
    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = comm.bcast(probe.getsockname()[1])
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=comm.Get_rank(), world_size=comm.Get_size())
    train(None)  # warms both up
    expected, gloo_seconds = train(None)
    losses, seconds = train(Engine(comm, algorithm="auto"))
    furthest = max(abs(loss - other) for loss, other in zip(losses, expected))
    if comm.Get_rank() == 0:
        print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}; gloo's {expected[-1]:.4f}; furthest apart {furthest:.1e}")
        print(f"{STEPS} steps: {seconds:.2f} s with nnabla_torus, {gloo_seconds:.2f} s with gloo")
    if furthest > 1e-4:
        raise AssertionError(f"losses differ by {furthest}: more than rounding")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with ending_all_ranks():
        main()
