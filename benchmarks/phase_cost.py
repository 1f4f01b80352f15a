"""What a phase costs in Python: the collectives of one rank whose three peers have always arrived already.

    python benchmarks/phase_cost.py

Nobody waits and 4 KB move, so what is left is our own code: the barrier's loop and numpy's calls.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from nnabla_torus.collectives.memory import Memory
from nnabla_torus.collectives.shared_memory import SharedMemoryCollectives
from nnabla_torus.plan import split

SIZE, COUNT, REPEATS = 4, 1024, 2000


class Alone(SharedMemoryCollectives):
    """Rank 0 of a group whose other members are memory in this process."""

    def __init__(self) -> None:
        self.rank, self.size = 0, SIZE
        self.memory = Memory(COUNT * 4)
        self._memories = [(self.memory, [self.memory.array, *(Memory(COUNT * 4).array for _ in range(SIZE - 1))])]
        self._arrived = [memoryview(np.array([2**62 if member else 0])) for member in range(SIZE)]
        self._round = 0


def main() -> None:
    group = Alone()
    view = group.memory.array.view(np.float32)
    pieces = split(0, COUNT, SIZE)
    for name, start in (
        ("reduce_scatter", group.reduce_scatter(view, pieces)),
        ("all_gather", group.all_gather(view, pieces)),
        ("all_reduce", group.all_reduce(view)),
    ):
        times = []
        for _ in range(REPEATS):
            begin = time.perf_counter()
            start()
            times.append(time.perf_counter() - begin)
        print(f"{name:15} {statistics.median(times) * 1e6:6.1f} us a phase, 4 KB, {SIZE} ranks (measured)")


if __name__ == "__main__":
    main()
