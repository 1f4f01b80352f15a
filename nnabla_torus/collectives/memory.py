"""Memory of one rank that the other ranks of its host map too.

A rank makes an anonymous file (memfd), which has no name to clash or to be left behind, whatever ends the process, and
no small file system to fill: only memory, claimed before it is used. Peers open it through /proc/PID/fd and map it.

    own file     | pages |        mapped by the owner: an array, or the pages of an array that exists already
                     ^
    peers            +-- the same pages, mapped by every rank of a group

nnabla cannot be given memory, but the pages under an array of its own can be exchanged: `Memory.under` maps the file
over them at the same address, so backward writes straight to where the peers read. The pages must be made private again
before nnabla releases them, since its allocator hands freed blocks to other arrays: `close`, or the end of the
`Memory`, does that, and until then the array is kept alive.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import weakref
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from nnabla_torus.failure import UserError

PAGE = mmap.PAGESIZE
_MAP_FIXED = 0x10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]


class MemoryUnavailable(UserError):
    """Memory cannot be shared here, with the reason."""


class Memory:
    """`nbytes` of this rank that its peers can map, as `array` of uint8; zeros unless it lies under an array."""

    def __init__(self, nbytes: int) -> None:
        self.file = _make_file(nbytes)
        try:
            self.array = np.frombuffer(mmap.mmap(self.file, nbytes), np.uint8)
        except (OSError, ValueError) as error:
            os.close(self.file)
            raise MemoryUnavailable(f"{nbytes} B cannot be mapped: {error}") from None
        self._give_back: Callable[[], object] = _nothing

    @classmethod
    def under(cls, array: np.ndarray) -> Memory:
        """Exchange the whole pages inside a contiguous array for shared ones that hold the same.

        `array` of the result is the shared part: up to a page at either end is not. Raises MemoryUnavailable.
        """
        address = array.ctypes.data
        start = -(-address // PAGE) * PAGE
        nbytes = (address + array.nbytes - start) // PAGE * PAGE
        if nbytes <= 0:
            raise MemoryUnavailable(f"an array of {array.nbytes} B has no whole page inside")
        memory = cls.__new__(cls)
        memory.file = _make_file(nbytes)
        memory.array = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(start))
        kept = memory.array.copy()
        try:
            _map(start, nbytes, mmap.MAP_SHARED | _MAP_FIXED, memory.file)
        except MemoryUnavailable:
            os.close(memory.file)
            raise
        memory.array[:] = kept
        # The array, and so its block, lives until its pages are private again.
        give_back = weakref.finalize(memory, _make_private, array, start, nbytes)
        give_back.atexit = False
        memory._give_back = give_back
        return memory

    def holds(self, view: np.ndarray) -> bool:
        """Return whether a view lies in this memory."""
        start = view.ctypes.data - self.array.ctypes.data
        return start >= 0 and start + view.nbytes <= self.array.nbytes

    def close(self) -> None:
        """Close the file, which leaves peers' mappings, and make pages under an array private again, contents kept."""
        if self.file >= 0:
            os.close(self.file)
            self.file = -1
        self._give_back()


def agreed(comm: MPI.Comm, make: Callable[[], Memory]) -> Memory:
    """Return this rank's `make()`, or raise MemoryUnavailable on all ranks of `comm` where any cannot make it."""
    memory, fault = None, ""
    try:
        memory = make()
    except MemoryUnavailable as reason:
        fault = str(reason)
    faults = [told for told in comm.allgather(fault) if told]
    if memory is None or faults:
        if memory is not None:
            memory.close()
        raise MemoryUnavailable(faults[0])
    return memory


def map_peers(comm: MPI.Comm, memory: Memory) -> list[np.ndarray]:
    """Return every member's memory as this rank sees it, in the group's order; all members of `comm` must call this.

    Raises MemoryUnavailable, on all members, when any of them cannot see the very pages of another.
    """
    offers = comm.allgather((os.getpid(), memory.file, memory.array.nbytes))
    mine = np.frombuffer(os.urandom(16), np.uint8)
    kept = memory.array[:16].copy()
    marks = comm.allgather(mine.tobytes()[: memory.array.nbytes])
    memory.array[:16] = mine[: memory.array.nbytes]
    comm.Barrier()
    seen, fault = [], ""
    for member, (pid, file, nbytes) in enumerate(offers):
        if member == comm.Get_rank():
            seen.append(memory.array)
            continue
        try:
            opened = os.open(f"/proc/{pid}/fd/{file}", os.O_RDWR)
            try:
                seen.append(np.frombuffer(mmap.mmap(opened, nbytes), np.uint8))
            finally:
                os.close(opened)
        except (OSError, ValueError) as error:
            fault = f"the memory of member {member} cannot be mapped: {error}"
            break
        if seen[member][: len(marks[member])].tobytes() != marks[member]:
            fault = f"the memory of member {member} is not the one it offered; is it on this host?"
            break
    faults = [told for told in comm.allgather(fault) if told]
    memory.array[:16] = kept
    comm.Barrier()
    if faults:
        raise MemoryUnavailable(faults[0])
    return seen


def _make_file(nbytes: int) -> int:
    """Return the file descriptor of an anonymous file whose memory is claimed: a lack shows here, not as a crash."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise MemoryUnavailable(
            f"only x86 promises the order of writes that sharing relies on, not {platform.machine()}"
        )
    file = -1
    try:
        file = os.memfd_create("nnabla_torus", os.MFD_CLOEXEC)
        os.posix_fallocate(file, 0, nbytes)
    except OSError as error:
        if file >= 0:
            os.close(file)
        raise MemoryUnavailable(f"{nbytes} B cannot be shared: {os.strerror(error.errno or errno.EIO)}") from None
    return file


def _nothing() -> None:
    pass


def _make_private(array: np.ndarray, start: int, nbytes: int) -> None:
    """Exchange the shared pages inside an array for private ones that hold the same."""
    inside = array.view(np.uint8).reshape(-1)[start - array.ctypes.data :][:nbytes]
    kept = inside.copy()
    _map(start, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED, -1)
    inside[:] = kept


def _map(address: int, nbytes: int, flags: int, file: int) -> None:
    got = _libc.mmap(address, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, 0)
    if got != address:
        raise MemoryUnavailable(f"{nbytes} B cannot be mapped: {os.strerror(ctypes.get_errno())}")
