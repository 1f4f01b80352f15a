"""Runs a plan over groups of ranks.

plan      lane 0: reduce_scatter x, all_reduce y, all_gather x        what the papers draw
steps     reduce_scatter ranks (4, 5, 6, 7) on elements 0 to 4000     what it means for this rank
          all_reduce     ranks (1, 5, 9)    on elements 1000 to 2000
          all_gather     ranks (4, 5, 6, 7) on elements 0 to 4000
prepared  a function for each step, bound to one buffer               what runs, again and again
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives import Collectives, Pieces, Start
from nnabla_torus.collectives.mpi import MpiCollectives
from nnabla_torus.plan import Op, Plan, split

# Makes the collectives of a group out of a communicator of its ranks, which it then owns.
MakeCollectives = Callable[[MPI.Comm], Collectives]


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

    Every rank makes one, with the same plan, at the same time; so are `prepare` and what it returns called. The
    communicators that it uses are its own. Raises ValueError unless the plan's grid has as many ranks as `comm`.
    """

    def __init__(self, plan: Plan, comm: MPI.Comm, make_collectives: MakeCollectives = MpiCollectives) -> None:
        if plan.grid.size != comm.Get_size():
            raise ValueError(f"{plan.name} on {plan.grid} is for {plan.grid.size} ranks, not {comm.Get_size()}")
        self.plan = plan
        self.rank: int = comm.Get_rank()
        coordinates = plan.grid.coordinates(self.rank)
        self._groups: dict[tuple[int, int], Collectives] = {}
        for number, lane in enumerate(plan.lanes):
            for axis in sorted({phase.axis for phase in lane.phases}):
                line = plan.grid.group(self.rank, axis)
                self._groups[number, axis] = make_collectives(comm.Split(line[0], coordinates[axis]))

    def prepare(self, buffer: np.ndarray) -> Start:
        """Return the all-reduce of one one-dimensional, contiguous buffer, to be started any number of times."""
        if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise ValueError("an all-reduce needs a writable, contiguous, one-dimensional buffer")
        prepared = [self._prepare(step, buffer) for step in steps(self.plan, self.rank, len(buffer))]

        def start() -> None:
            for collective in prepared:
                collective()

        return start

    def _prepare(self, step: Step, buffer: np.ndarray) -> Start:
        group = self._groups[step.lane, step.axis]
        view = buffer[step.start : step.stop]
        if step.op is Op.REDUCE_SCATTER:
            return group.reduce_scatter(view, step.pieces)
        if step.op is Op.ALL_GATHER:
            return group.all_gather(view, step.pieces)
        if step.op is Op.ALL_REDUCE:
            return group.all_reduce(view)
        if step.op is Op.REDUCE:
            return group.reduce(view)
        return group.broadcast(view)

    def __call__(self, buffer: np.ndarray) -> None:
        """Sum one buffer in place, once."""
        self.prepare(buffer)()

    def close(self) -> None:
        """Free the groups; every rank must."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()
