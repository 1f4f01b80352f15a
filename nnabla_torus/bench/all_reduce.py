"""Times all-reduce algorithms side by side, with nccl-tests' habits.

Algorithms take turns within each iteration, so that what disturbs the machine disturbs all of them. The time of an
iteration is that of its slowest rank; a row shows the median. Every result is checked before it is timed.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import mpi4py
import numpy as np
from mpi4py import MPI

import nnabla_torus
from nnabla_torus.all_reduce import AllReduce, hosts_of
from nnabla_torus.collectives.memory import Memory
from nnabla_torus.failure import UserError
from nnabla_torus.grid import parse_grid, ranks_per_host
from nnabla_torus.plan import ALGORITHMS, Plan, make_plan

# What a user types for the library's own MPI_Allreduce.
LIBRARY = "mpi"
NAMES = (*(name for name in ALGORITHMS if name != "native"), LIBRARY)

# Input repeats after this many elements: a prime, so that a piece that went astray meets other values.
PERIOD = 1021


@dataclass(frozen=True)
class Result:
    """One row: sizes in bytes, times in us, bandwidths in GB/s (1e9), wrong elements counted over all ranks."""

    size: int
    count: int
    dtype: str
    algorithm: str
    grid: str
    time_us: float
    p99_us: float
    algbw: float
    busbw: float
    wrong: int | None


HEADER = (
    f"{'size':>12} {'count':>12} {'type':>8} {'redop':>6} {'algorithm':>18} {'grid':>8} "
    f"{'time':>11} {'algbw':>8} {'busbw':>8} {'#wrong':>7}\n"
    f"{'(B)':>12} {'(elements)':>12} {'':>8} {'':>6} {'':>18} {'':>8} {'(us)':>11} {'(GB/s)':>8} {'(GB/s)':>8} {'':>7}"
)


def line(result: Result) -> str:
    """Return a result as a row under `HEADER`."""
    wrong = "N/A" if result.wrong is None else result.wrong
    return (
        f"{result.size:>12} {result.count:>12} {result.dtype:>8} {'sum':>6} {result.algorithm:>18} {result.grid:>8} "
        f"{result.time_us:>11.1f} {result.algbw:>8.3f} {result.busbw:>8.3f} {wrong:>7}"
    )


def make_plans(comm: MPI.Comm, algorithms: Sequence[str], grid: str) -> dict[str, Plan]:
    """Return each algorithm's plan on these ranks; raises UserError for an unknown name or a grid that does not fit."""
    for name in algorithms:
        if name not in NAMES:
            raise UserError(f"--algorithms: {name!r} is unknown; choose from {', '.join(NAMES)}")
    chosen = parse_grid(grid, comm.Get_size(), ranks_per_host(hosts_of(comm)))
    return {name: make_plan("native" if name == LIBRARY else name, chosen) for name in algorithms}


def run(
    comm: MPI.Comm,
    runners: Mapping[str, AllReduce],
    sizes: Sequence[int],
    dtype: str,
    iterations: int,
    warmup: int,
    check: bool,
) -> Iterator[Result]:
    """Yield a result for every size in bytes and every runner; all ranks of `comm` run this and get the same.

    Buffers lie where gradients do: in memory that the ranks of a host share, or in a rank's own for the library.
    """
    rank, size = comm.Get_rank(), comm.Get_size()
    for bytes_wanted in sizes:
        count = bytes_wanted // np.dtype(dtype).itemsize
        memory = Memory(max(bytes_wanted, 1))
        private = np.zeros(count, dtype)
        shared = memory.array[: private.nbytes].view(dtype)
        buffers, starts = {}, {}
        for name, runner in runners.items():
            runner.open(memory)
            buffers[name] = private if runner.plan.library else shared
            starts[name] = runner.prepare(buffers[name])
        wrong: dict[str, int | None] = dict.fromkeys(runners)
        if check:
            expected = np.resize(sum(pattern(other) for other in range(size)), count).astype(dtype)
            for name, start in starts.items():
                buffers[name][:] = np.resize(pattern(rank), count)
                start()
                wrong[name] = comm.allreduce(int(np.count_nonzero(buffers[name] != expected)))
        private[:] = shared[:] = 0  # sums of zeros take as long as any and never overflow
        times: dict[str, list[float]] = {name: [] for name in runners}
        for iteration in range(warmup + iterations):
            for name, start in starts.items():
                comm.Barrier()
                begin = time.perf_counter()
                start()
                elapsed = time.perf_counter() - begin
                if iteration >= warmup:
                    times[name].append(elapsed)
        for name, runner in runners.items():
            slowest = np.array(times[name])
            comm.Allreduce(MPI.IN_PLACE, slowest, MPI.MAX)
            seconds = statistics.median(slowest)
            algbw = private.nbytes / seconds / 1e9
            yield Result(
                size=private.nbytes,
                count=count,
                dtype=dtype,
                algorithm=name,
                grid=str(runner.plan.grid),
                time_us=seconds * 1e6,
                p99_us=float(np.percentile(slowest, 99)) * 1e6,
                algbw=algbw,
                busbw=algbw * 2 * (size - 1) / size,
                wrong=wrong[name],
            )
            runner.forget(memory)
        memory.close()


def pattern(rank: int) -> np.ndarray:
    """Return one period of a rank's input: small whole numbers, whose sums float16 holds exactly up to 100 ranks."""
    return (np.arange(PERIOD) * 7 + rank * 13) % 31 - 11


def sizes(begin: int, end: int, factor: float) -> list[int]:
    """Return the sizes from `begin` to `end` bytes, each `factor` times the one before and at least 1 more."""
    found = [begin]
    while (larger := max(int(found[-1] * factor), found[-1] + 1)) <= end:
        found.append(larger)
    return found


def environment(comm: MPI.Comm) -> dict[str, object]:
    """Return what a reader of the numbers needs to know of where they came from."""
    cluster = os.environ.get("NNABLA_TORUS_EMULATED_CLUSTER")
    return {
        "ranks": comm.Get_size(),
        "ranks_per_host": list(ranks_per_host(hosts_of(comm))),
        "mpi": MPI.Get_library_version().split(",")[0].strip("\0\n "),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "mpi4py": mpi4py.__version__,
        "nnabla_torus": nnabla_torus.__version__,
        "command": sys.argv,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "emulated_cluster": json.loads(cluster) if cluster else None,
    }


def cpu_model() -> str:
    """Return the processor's name as the kernel tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [text.split(":", 1)[1].strip() for text in lines if text.startswith("model name")]
    return names[0] if names else platform.machine()


def as_json(surroundings: dict[str, object], results: Sequence[Result]) -> str:
    """Return the machine-readable report."""
    return json.dumps({"environment": surroundings, "results": [asdict(result) for result in results]}, indent=1)
