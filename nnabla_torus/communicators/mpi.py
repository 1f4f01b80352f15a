"""nnabla's Communicator interface on CPU arrays over MPI.

nnabla registers no communicator for a CPU context, so this one stands in: the names, arguments and effects are those of
its `MultiProcessDataParallelCommunicator`. Where nnabla checks nothing we check: before data moves, the members compare
what each of them brings, and a difference is one error on all of them instead of a hang or a wrong tail.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Union

import nnabla as nn
import numpy as np
from mpi4py import MPI

from nnabla_torus.all_reduce import hosts_of
from nnabla_torus.collectives import Start
from nnabla_torus.collectives.memory import PAGE, Memory, MemoryUnavailable, agreed
from nnabla_torus.collectives.mpi import parts
from nnabla_torus.engine import Engine

WORLD = "world"
Arrays = Union[nn.NdArray, Sequence[nn.NdArray]]


class MpiCommunicator:
    """Exchanges nnabla's CPU arrays between the ranks of an MPI communicator.

    Beyond nnabla's interface it has `grid`, `algorithm`, `prepare`, and `mpi`: a communicator of its own for the
    caller's small host data.
    """

    name = "MpiCommunicator"

    def __init__(self, comm: MPI.Comm, algorithm: str, grid: str, tuning: Path | None = None) -> None:
        self.engine = Engine(comm, algorithm, grid, tuning)
        self.mpi: MPI.Comm = comm.Dup()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        hosts = hosts_of(comm)
        self.local_rank: int = hosts[: self.rank].count(hosts[self.rank])
        self.ranks_per_host = self.engine.ranks_per_host
        self.algorithm = algorithm
        self.grid = self.engine.grid
        self.why_not_shared = ""
        self._ranks: dict[str, list[int]] = {WORLD: list(range(self.size))}
        self._groups: dict[str, MPI.Comm] = {WORLD: comm.Dup()}
        self._parameters: dict[str, nn.Variable] = {}

    # Groups.

    def new_group(self, name_ranks: tuple[str, Sequence[int]]) -> str:
        """Make a group of ranks, a pair of name and ranks in the group's order; every rank of the world must call this.

        Raises ValueError for a name that exists, and for ranks that are missing, repeated or not in the world.
        """
        name, ranks = name_ranks[0], [int(rank) for rank in name_ranks[1]]
        self._agree(self._groups[WORLD], f"new_group {name!r} of ranks {ranks}")
        if name in self._ranks:
            raise ValueError(f"group {name!r} exists already, with ranks {self._ranks[name]}; choose another name")
        if not ranks or len(set(ranks)) < len(ranks) or not set(ranks) <= set(range(self.size)):
            raise ValueError(
                f"group {name!r} has ranks {ranks}; it needs one or more different ranks from 0 to {self.size - 1}"
            )
        world = self._groups[WORLD]
        everybody = world.Get_group()
        members = everybody.Incl(ranks)
        comm = world.Create(members)
        members.Free()
        everybody.Free()
        self._ranks[name] = ranks
        if comm != MPI.COMM_NULL:
            self._groups[name] = comm
        return name

    def list_groups(self) -> dict[str, list[int]]:
        """Return every group's ranks by name."""
        return {name: list(ranks) for name, ranks in self._ranks.items()}

    def find_group(self, group: str) -> list[int]:
        """Return a group's ranks, [] for a name that does not exist."""
        return list(self._ranks.get(group, []))

    # Collectives. `division` divides by the group's size; arrays that are `zeroing` on every rank are left so.

    def all_reduce(self, data: Arrays, division: bool = False, inplace: bool = False, group: str = WORLD) -> None:
        """Sum arrays over a group, over the world by the plan; `inplace` sums each alone instead of packed together."""
        arrays = _listed(data)
        comm = self._members(group)
        arrays = self._touched(comm, arrays, f"all_reduce division={division} inplace={inplace} on {group!r}")
        for packet in [[array] for array in arrays] if inplace else _by_dtype(arrays):
            buffer = _pack(packet)
            if group == WORLD:
                self.engine.all_reduce(buffer)
            else:
                for part in parts(buffer):
                    comm.Allreduce(MPI.IN_PLACE, part, MPI.SUM)
            _divide(buffer, comm.Get_size() if division else 1)
            _unpack(buffer, packet)

    def reduce(self, data: Arrays, dst: int, division: bool = False, inplace: bool = False, group: str = WORLD) -> None:
        """Sum arrays over a group at its member `dst`, counted within the group; the others' stay as they are."""
        arrays = _listed(data)
        comm = self._members(group, dst)
        self._agree(comm, f"reduce to {dst} division={division} inplace={inplace} on {group!r}", arrays)
        for packet in [[array] for array in arrays] if inplace else _by_dtype(arrays):
            buffer = _pack(packet)
            leads = comm.Get_rank() == dst
            for part in parts(buffer):
                comm.Reduce(MPI.IN_PLACE if leads else part, part if leads else None, MPI.SUM, root=dst)
            if not leads:
                continue
            _divide(buffer, comm.Get_size() if division else 1)
            _unpack(buffer, packet)

    def bcast(self, data: Arrays, src: int, inplace: bool = False, group: str = WORLD) -> None:
        """Copy the arrays of the member `src`, counted within the group, to every member."""
        arrays = _listed(data)
        comm = self._members(group, src)
        self._agree(comm, f"bcast from {src} inplace={inplace} on {group!r}", arrays)
        for packet in [[array] for array in arrays] if inplace else _by_dtype(arrays):
            buffer = _pack(packet)
            for part in parts(buffer):
                comm.Bcast(part, root=src)
            _unpack(buffer, packet)

    def all_gather(self, ndarray: nn.NdArray, ndarray_list: Sequence[nn.NdArray], group: str = WORLD) -> None:
        """Copy every member's `ndarray` into `ndarray_list`: one array a member, or arrays of that total size.

        Raises ValueError when the sizes do not match.
        """
        comm = self._members(group)
        arrays = _listed(ndarray_list)
        self._agree(comm, f"all_gather on {group!r}", [ndarray, *arrays])
        _one_dtype_and_size("all_gather", ndarray, arrays, comm.Get_size())
        gathered = np.empty(ndarray.size * comm.Get_size(), _dtype(ndarray))
        comm.Allgather(_pack([ndarray]), gathered)
        _unpack(gathered, arrays)

    def reduce_scatter(
        self, ndarray_list: Sequence[nn.NdArray], ndarray: nn.NdArray, division: bool = False, group: str = WORLD
    ) -> None:
        """Sum `ndarray_list` over a group and leave one's own piece in `ndarray`; the list as for `all_gather`.

        Raises ValueError when the sizes do not match.
        """
        comm = self._members(group)
        arrays = _listed(ndarray_list)
        self._agree(comm, f"reduce_scatter division={division} on {group!r}", [ndarray, *arrays])
        _one_dtype_and_size("reduce_scatter", ndarray, arrays, comm.Get_size())
        piece = np.empty(ndarray.size, _dtype(ndarray))
        comm.Reduce_scatter_block(_pack(arrays), piece, MPI.SUM)
        _divide(piece, comm.Get_size() if division else 1)
        _unpack(piece, [ndarray])

    def barrier(self) -> None:
        """Wait until every rank of the world is here."""
        self._groups[WORLD].Barrier()

    def abort(self) -> None:
        """End all ranks."""
        MPI.COMM_WORLD.Abort(1)

    def allocate(self, count: int, dtype: np.dtype) -> nn.NdArray:
        """Return a flat array of zeros for `prepare`, in memory that the other ranks of the host see where possible.

        Write to it through `data`: its `zero()` might free it.
        """
        room = nn.NdArray((count + 2 * PAGE // dtype.itemsize,))
        room.cast(dtype)
        room.data[:] = 0
        start = 0
        try:
            memory = agreed(self._groups[WORLD], lambda: Memory.under(room.data))
        except MemoryUnavailable as reason:
            self.why_not_shared = str(reason)
        else:
            self.engine.share(memory)
            start = (memory.array.ctypes.data - room.data.ctypes.data) // dtype.itemsize
        return room.narrow(0, start, count)

    def prepare(self, buffer: nn.NdArray) -> Start:
        """Return the all-reduce of an array from `allocate` over the world, to be started any number of times.

        Raises ValueError where the ranks' arrays differ, and RuntimeError at a start if nnabla has moved the array.
        """
        self._agree(self._groups[WORLD], "prepare", [buffer])
        view = buffer.data
        all_reduce = self.engine.prepare(view)

        def start() -> None:
            if buffer.data.ctypes.data != view.ctypes.data:
                raise RuntimeError("nnabla moved a buffer that an all-reduce was prepared for; allocate it again")
            all_reduce()

        return start

    def choice(self, buffer: nn.NdArray) -> str:
        """Return what `prepare` takes for an array: the algorithm and its means inside and between hosts."""
        return str(self.engine.choose(buffer.size * _dtype(buffer).itemsize))

    def close(self) -> None:
        """Free everything; every rank must. Arrays from `allocate` keep their contents and become private again."""
        self.engine.close()
        for comm in (*self._groups.values(), self.mpi):
            comm.Free()
        self._groups.clear()

    # What nnabla's users find there too.

    def init(self) -> None:
        """Do nothing: a communicator is ready when it is made."""

    def add_context_and_parameters(self, ctx_param_dict: tuple[nn.Context, Mapping[str, nn.Variable]]) -> None:
        """Add parameters whose gradients `allreduce` sums."""
        self._parameters.update(ctx_param_dict[1])

    def clear_context_parameters(self) -> None:
        """Forget the parameters that were added."""
        self._parameters.clear()

    def allreduce(self, division: bool = False, inplace: bool = False) -> None:
        """Sum the gradients of the parameters that were added; nnabla's older name."""
        self.all_reduce([parameter.grad for parameter in self._parameters.values()], division, inplace)

    def all_reduce_callback(self, *_: object, **__: object) -> None:
        """Raise NotImplementedError: nnabla's backward takes callbacks of its own C++ type only."""
        raise NotImplementedError(
            "all_reduce_callback needs nnabla's C++ communicator; use nnabla_torus.gradients.GradientExchange"
        )

    # The checks.

    def _members(self, group: str, root: int = 0) -> MPI.Comm:
        """Return the group's communicator, with `root` checked."""
        if group not in self._ranks:
            raise ValueError(f"group {group!r} does not exist; there are {', '.join(self._ranks)}")
        if group not in self._groups:
            raise ValueError(f"rank {self.rank} is not in group {group!r} of ranks {self._ranks[group]}")
        if not 0 <= root < len(self._ranks[group]):
            members = len(self._ranks[group])
            raise ValueError(f"root {root} is not in group {group!r} of {members} ranks; roots count within the group")
        return self._groups[group]

    def _agree(self, comm: MPI.Comm, call: str, arrays: Sequence[nn.NdArray] = ()) -> None:
        """Raise ValueError on every member unless all make the same call with equal arrays."""
        brought = f"{call} of {_described(arrays)}" if arrays else call
        mark = zlib.crc32(brought.encode())
        lowest_and_highest = np.array([-mark, mark])
        comm.Allreduce(MPI.IN_PLACE, lowest_and_highest, MPI.MAX)
        if -lowest_and_highest[0] != lowest_and_highest[1]:
            calls = comm.allgather(brought)
            first = next(member for member, other in enumerate(calls) if other != calls[0])
            raise ValueError(
                f"members differ: member 0 calls {calls[0]}, member {first} calls {calls[first]}; all must be the same"
            )

    def _touched(self, comm: MPI.Comm, arrays: list[nn.NdArray], call: str) -> list[nn.NdArray]:
        """Return the arrays that some member has written since `zero()`; the others need no sum."""
        self._agree(comm, call, arrays)
        touched = np.array([not array.zeroing for array in arrays], np.uint8)
        comm.Allreduce(MPI.IN_PLACE, touched, MPI.MAX)
        return [array for array, flag in zip(arrays, touched) if flag]


def _listed(data: Arrays) -> list[nn.NdArray]:
    return [data] if isinstance(data, nn.NdArray) else list(data)


def _dtype(array: nn.NdArray) -> np.dtype:
    """Return an array's dtype; float32, nnabla's default, for one that was never used."""
    try:
        return np.dtype(array.dtype)
    except RuntimeError:
        return np.dtype(np.float32)


def _described(arrays: Sequence[nn.NdArray]) -> str:
    if len(arrays) == 1:
        return f"{arrays[0].size} {_dtype(arrays[0])}"
    return f"{len(arrays)} arrays: " + ", ".join(f"{array.size} {_dtype(array)}" for array in arrays)


def _by_dtype(arrays: Sequence[nn.NdArray]) -> list[list[nn.NdArray]]:
    packets: dict[np.dtype, list[nn.NdArray]] = {}
    for array in arrays:
        packets.setdefault(_dtype(array), []).append(array)
    return list(packets.values())


def _pack(arrays: Sequence[nn.NdArray]) -> np.ndarray:
    """Return the arrays' elements in one flat buffer; a single array is its own."""
    if len(arrays) == 1:
        return arrays[0].data.reshape(-1)
    return np.concatenate([array.data.reshape(-1) for array in arrays])


def _unpack(buffer: np.ndarray, arrays: Sequence[nn.NdArray]) -> None:
    start = 0
    for array in arrays:
        target = array.data.reshape(-1)
        if not np.may_share_memory(target, buffer):
            target[:] = buffer[start : start + array.size]
        start += array.size


def _divide(buffer: np.ndarray, divisor: int) -> None:
    if divisor != 1:
        np.divide(buffer, divisor, out=buffer, casting="unsafe")


def _one_dtype_and_size(call: str, piece: nn.NdArray, whole: Sequence[nn.NdArray], members: int) -> None:
    total = sum(array.size for array in whole)
    if total != piece.size * members:
        raise ValueError(
            f"{call}: the list holds {total} elements, the array {piece.size}; {members} members need "
            f"{piece.size * members} in the list"
        )
    dtypes = sorted({str(_dtype(array)) for array in [piece, *whole]})
    if len(dtypes) > 1:
        raise ValueError(f"{call}: arrays of {' and '.join(dtypes)}; all must have one dtype")
