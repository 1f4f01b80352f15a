"""A group's collectives through memory that its ranks share: nobody sends, everybody reads and writes.

Member i owns piece i of the view. Nobody else reads or writes piece i of anybody's buffer before member i has summed
it, so one barrier in front of a reduce-scatter and one behind an all-gather are all that is needed:

    reduce_scatter    barrier (everybody's input is written)   member i: own piece += piece i of every other member
    all_gather        member i: copy own piece into every other member's buffer   barrier (everybody's piece has come)

Both in one pass are the all-reduce, block by block while a block is in the cache. Sums are made by one member in one
order, so all members end bitwise equal.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives import Pieces, Start
from nnabla_torus.collectives.memory import Memory, agreed, map_peers
from nnabla_torus.plan import split

# Bytes that are summed at a time: with one block of a peer beside it, it stays in a core's second-level cache.
BLOCK_B = 128 * 1024

# A rank that waits yields its core so often, then naps: a busy machine gives the core to those who still work.
PATIENT_TURNS = 2000
NAP_S = 50e-6

_CACHE_LINE_B = 64

# Gives the core to another rank where ranks outnumber cores. Through ctypes it also releases Python's lock, which
# os.sched_yield does not: an exchange thread that waits must not stop the thread that computes.
_yield_core = ctypes.CDLL(None).sched_yield


class SharedMemoryCollectives:
    """Collectives of the ranks of one MPI communicator, all on one host, on views into a `Memory` of each.

    Before a view is used, `open` must have been called with the memory it lies in. Raises MemoryUnavailable where
    memory cannot be shared.
    """

    one_pass = True

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        self._memories: list[tuple[Memory, list[np.ndarray]]] = []
        arrivals = agreed(comm, lambda: Memory(_CACHE_LINE_B))
        self._arrived = [memoryview(seen).cast("q") for seen in map_peers(comm, arrivals)]  # type: ignore[arg-type]
        arrivals.close()
        self._round = 0

    def open(self, memory: Memory) -> None:
        """Map every member's memory; all members must call this with memories of one size."""
        self._memories.append((memory, map_peers(self.comm, memory)))

    def forget(self, memory: Memory) -> None:
        """Let go of the peers' memories that were opened beside this one."""
        self._memories = [opened for opened in self._memories if opened[0] is not memory]

    def barrier(self) -> None:
        """Wait until all members are here; what each wrote before is seen by all after."""
        self._round += 1
        round_ = self._round
        self._arrived[self.rank][0] = round_
        for arrived in self._arrived:
            turns = 0
            while arrived[0] < round_:
                turns += 1
                if turns < PATIENT_TURNS:
                    _yield_core()
                else:
                    time.sleep(NAP_S)

    def reduce_scatter(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Sum one's own piece from every member's view."""
        blocks = _blocks([peer[slice(*pieces[self.rank])] for peer in self._peers(view)])

        def start() -> None:
            self.barrier()
            for own, *others in blocks:
                for other in others:
                    np.add(own, other, own)

        return start

    def all_gather(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Copy one's own piece into every other member's view."""
        blocks = _blocks([peer[slice(*pieces[self.rank])] for peer in self._peers(view)])

        def start() -> None:
            for own, *others in blocks:
                for other in others:
                    np.copyto(other, own)
            self.barrier()

        return start

    def all_reduce(self, view: np.ndarray) -> Start:
        """Sum one's own piece and hand it out, block by block."""
        own_piece = slice(*split(0, len(view), self.size)[self.rank])
        blocks = _blocks([peer[own_piece] for peer in self._peers(view)])

        def start() -> None:
            self.barrier()
            for own, *others in blocks:
                for other in others:
                    np.add(own, other, own)
                for other in others:
                    np.copyto(other, own)
            self.barrier()

        return start

    def reduce(self, view: np.ndarray) -> Start:
        """Sum one's own piece into the first member's view."""
        own_piece = slice(*split(0, len(view), self.size)[self.rank])
        blocks = _blocks([peer[own_piece] for _, peer in sorted(self._members(view), key=lambda member: member[0])])

        def start() -> None:
            self.barrier()
            for root, *brought in blocks:
                for other in brought:
                    np.add(root, other, root)
            self.barrier()

        return start

    def broadcast(self, view: np.ndarray) -> Start:
        """Copy the first member's view."""
        root = min(self._members(view), key=lambda member: member[0])[1]

        def start() -> None:
            self.barrier()
            if self.rank != 0:
                np.copyto(view, root)
            self.barrier()

        return start

    def close(self) -> None:
        """Free the communicator and forget the peers' memory."""
        self._memories.clear()
        self.comm.Free()

    def _members(self, view: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """Return (member, its elements at this view's place), this rank first, then on around the group."""
        for memory, seen in self._memories:
            if memory.holds(view):
                start = view.ctypes.data - memory.array.ctypes.data
                order = [(self.rank + step) % self.size for step in range(self.size)]
                return [(member, seen[member][start : start + view.nbytes].view(view.dtype)) for member in order]
        raise ValueError("a view lies in no memory that was opened for its group")

    def _peers(self, view: np.ndarray) -> list[np.ndarray]:
        return [peer for _, peer in self._members(view)]


def _blocks(views: Sequence[np.ndarray]) -> list[tuple[np.ndarray, ...]]:
    """Cut equal views into blocks that fit the cache; each entry holds the same block of every view."""
    step = BLOCK_B // views[0].itemsize
    return [tuple(view[at : at + step] for view in views) for at in range(0, len(views[0]), step)]
