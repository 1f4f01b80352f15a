"""Runs a plan over groups of ranks.

    plan      lane 0: reduce_scatter x, all_reduce y, all_gather x        what the papers draw
    steps     reduce_scatter ranks (4, 5, 6, 7) on elements 0 to 4000     what it means for this rank
              all_reduce     ranks (1, 5, 9)    on elements 1000 to 2000
              all_gather     ranks (4, 5, 6, 7) on elements 0 to 4000
    prepared  a function for each step, bound to one buffer               what runs, again and again

Each group of ranks has its own means: ranks of one host share memory, ranks of several send messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives import Collectives, Pieces, Start
from nnabla_torus.collectives.memory import Memory, MemoryUnavailable, agreed
from nnabla_torus.collectives.mpi import MpiCollectives
from nnabla_torus.collectives.shared_memory import SharedMemoryCollectives
from nnabla_torus.collectives.steps import HalvingCollectives, RingCollectives
from nnabla_torus.means import MESSAGES, SHARED_MEMORY, Means
from nnabla_torus.plan import Op, Plan, split

BY_MESSAGES: Mapping[str, Callable[[MPI.Comm], MpiCollectives]] = MappingProxyType(
    dict(zip(MESSAGES, (MpiCollectives, RingCollectives, HalvingCollectives)))
)


@dataclass(frozen=True)
class Step:
    """One phase as one rank sees it: with whom, and on which elements [start, stop) of the buffer."""

    op: Op
    lane: int
    axis: int
    members: tuple[int, ...]
    start: int
    stop: int

    @property
    def pieces(self) -> Pieces:
        """Each member's piece, counted from `start`."""
        return split(0, self.stop - self.start, len(self.members))


def steps(plan: Plan, rank: int, count: int) -> list[Step]:
    """Return what `rank` does for a buffer of `count` elements, lane after lane, phases without company left out."""
    found = []
    coordinates = plan.grid.coordinates(rank)
    for number, (lane, segment) in enumerate(zip(plan.lanes, plan.offsets(count))):
        held = [segment]  # what this rank works on is the last; all-gathers return to those before
        for phase in lane.phases:
            if not phase.takes_part(coordinates):
                continue
            members = plan.grid.group(rank, phase.axis)
            if phase.op is Op.ALL_GATHER:
                held.pop()
            if len(members) > 1:
                found.append(Step(phase.op, number, phase.axis, members, *held[-1]))
            if phase.op is Op.REDUCE_SCATTER:
                held.append(split(*held[-1], len(members))[members.index(rank)])
    return found


class AllReduce:
    """A plan on the ranks of an MPI communicator, ready to sum buffers in place.

    Every rank makes one, with the same arguments, at the same time; its methods and what they return are called by all
    ranks likewise. The communicators that it uses are its own. Where ranks of a host should share memory but cannot,
    `why_not_shared` holds the reason and the library's collectives stand in. Raises ValueError unless the plan's grid
    has as many ranks as `comm`.
    """

    def __init__(self, plan: Plan, comm: MPI.Comm, means: Means | None = None) -> None:
        if plan.grid.size != comm.Get_size():
            raise ValueError(f"{plan.name} on {plan.grid} is for {plan.grid.size} ranks, not {comm.Get_size()}")
        self.plan = plan
        self.rank: int = comm.Get_rank()
        self.means = means or Means()
        self.why_not_shared = ""
        self._comm: MPI.Comm = comm.Dup()
        self._groups: dict[tuple[int, int], Collectives] = {}
        self._sharing: list[SharedMemoryCollectives] = []
        self._opened: list[Memory] = []
        self._window: Memory | None = None
        self._windows: list[Memory] = []
        hosts = hosts_of(comm)
        coordinates = plan.grid.coordinates(self.rank)
        for number, lane in enumerate(plan.lanes):
            for axis in sorted({phase.axis for phase in lane.phases}):
                line = plan.grid.group(self.rank, axis)
                one_host = len({hosts[rank] for rank in line}) == 1
                self._groups[number, axis] = self._collectives(comm.Split(line[0], coordinates[axis]), one_host)

    def _collectives(self, group: MPI.Comm, one_host: bool) -> Collectives:
        means = self.means.inside if one_host else self.means.between
        if self.plan.library or group.Get_size() == 1:
            means = "library"
        if means != SHARED_MEMORY:
            return BY_MESSAGES[means](group)
        try:
            sharing = SharedMemoryCollectives(group)
        except MemoryUnavailable as reason:
            self.why_not_shared = str(reason)
            return MpiCollectives(group)
        self._sharing.append(sharing)
        return sharing

    def open(self, memory: Memory) -> None:
        """Let the groups use buffers that lie in `memory` in place; all ranks bring one of the same size.

        Raises MemoryUnavailable, on all ranks of a group, where it cannot be shared.
        """
        if not any(opened is memory for opened in self._opened):
            for group in self._sharing:
                group.open(memory)
            self._opened.append(memory)

    def forget(self, memory: Memory) -> None:
        """Let go of memory that was opened; buffers prepared in it must not be started any more."""
        for group in self._sharing:
            group.forget(memory)
        self._opened = [opened for opened in self._opened if opened is not memory]

    def prepare(self, buffer: np.ndarray) -> Start:
        """Return the all-reduce of one one-dimensional, contiguous buffer, to be started any number of times.

        A buffer that lies in opened memory is summed where it is; where ranks share memory any other is copied into
        and out of a window that they share, which all prepared buffers of this object have in common.
        """
        if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise ValueError("an all-reduce needs a writable, contiguous, one-dimensional buffer")
        if not self._sharing or any(memory.holds(buffer) for memory in self._opened):
            return self._in_place(buffer)
        return self._through_window(buffer)

    def _in_place(self, buffer: np.ndarray) -> Start:
        prepared: list[Start] = []
        todo = steps(self.plan, self.rank, len(buffer))
        while todo:
            step = todo.pop(0)
            group = self._groups[step.lane, step.axis]
            view = buffer[step.start : step.stop]
            if step.op is Op.REDUCE_SCATTER:
                undone_at_once = todo and (todo[0].op, todo[0].axis, todo[0].lane) == (
                    Op.ALL_GATHER,
                    step.axis,
                    step.lane,
                )
                if group.one_pass and undone_at_once:
                    todo.pop(0)
                    prepared.append(group.all_reduce(view))
                else:
                    prepared.append(group.reduce_scatter(view, step.pieces))
            elif step.op is Op.ALL_GATHER:
                prepared.append(group.all_gather(view, step.pieces))
            elif step.op is Op.ALL_REDUCE:
                prepared.append(group.all_reduce(view))
            elif step.op is Op.REDUCE:
                prepared.append(group.reduce(view))
            else:
                prepared.append(group.broadcast(view))

        def start() -> None:
            for collective in prepared:
                collective()

        return start

    def _through_window(self, buffer: np.ndarray) -> Start:
        if self._window is None or self._window.array.nbytes < buffer.nbytes:
            # Buffers prepared before keep the smaller window, which stays open; doubling keeps those few.
            size = max(buffer.nbytes, 2 * self._window.array.nbytes if self._window else 1)
            self._window = agreed(self._comm, lambda: Memory(size))
            self._windows.append(self._window)
            self.open(self._window)
        window = self._window.array[: buffer.nbytes].view(buffer.dtype)
        summed = self._in_place(window)

        def start() -> None:
            np.copyto(window, buffer)
            summed()
            np.copyto(buffer, window)

        return start

    def __call__(self, buffer: np.ndarray) -> None:
        """Sum one buffer in place, once."""
        self.prepare(buffer)()

    def close(self) -> None:
        """Free the groups; every rank must."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()
        self._sharing.clear()
        self._opened.clear()
        for window in self._windows:
            window.close()
        self._comm.Free()


def hosts_of(comm: MPI.Comm) -> list[int]:
    """Return, for every rank of `comm`, the lowest rank on its host; all ranks must call this."""
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = host.bcast(comm.Get_rank())
    host.Free()
    return list(comm.allgather(first))
