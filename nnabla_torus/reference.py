"""The proof of a plan: its phases for all ranks in one process, checking who owns what.

Each rank holds one segment of its lane's part of the buffer, together with the set of ranks whose gradients are summed
in it. A phase is legal only if its members hold what the collective reads; at the end every rank must hold the whole
part with everybody's gradients in it. Nothing here is shared with the code that moves data over a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnabla_torus.plan import Phase, Plan, split


class PlanError(ValueError):
    """A plan that does not compute the sum: names the lane, the phase and the rank where it went wrong."""


@dataclass(frozen=True)
class Traffic:
    """What a plan asks of one rank: messages one after another, and elements sent.

    Phases are counted as rings: p - 1 steps for a reduce-scatter or an all-gather, both for an all-reduce; a reduce and
    a broadcast as chains of p - 1 steps, in which every member but the last passes the whole segment on.
    """

    steps: int
    elements: int


@dataclass(frozen=True)
class Holding:
    """Elements [start, stop) with the gradients of `summed` (bit r for rank r) added up in them."""

    start: int
    stop: int
    summed: int
    outer: Holding | None = None  # what it was scattered from (`summed` left out), to which an all-gather returns

    @property
    def length(self) -> int:
        """Number of elements."""
        return self.stop - self.start


def check(plan: Plan, count: int) -> list[Traffic]:
    """Prove that `plan` leaves the sum of `count` elements whole on every rank, and return each rank's traffic.

    Raises PlanError where it does not.
    """
    return _run(plan, count, None)


def all_reduce(plan: Plan, inputs: np.ndarray) -> np.ndarray:
    """Return what every rank holds after `plan`; inputs and result have the shape (ranks, count).

    What a collective leaves undefined is overwritten, so that a sum which reads it comes out wrong.
    Raises PlanError as `check` does.
    """
    buffers = inputs.copy()
    _run(plan, inputs.shape[1], buffers)
    return buffers


def holdings(plan: Plan, count: int) -> Iterator[tuple[int, Phase | None, list[Holding | None]]]:
    """Yield (lane, phase, what every rank holds after it), lane after lane; the phase is None at a lane's start."""
    for number, span in enumerate(plan.offsets(count)):
        lane = _LaneRun(plan, number, span, None)
        yield number, None, list(lane.held)
        for phase in plan.lanes[number].phases:
            lane.do(phase)
            yield number, phase, list(lane.held)
        lane.prove()


def _run(plan: Plan, count: int, buffers: np.ndarray | None) -> list[Traffic]:
    lanes = [_LaneRun(plan, number, span, buffers) for number, span in enumerate(plan.offsets(count))]
    for lane in lanes:
        for phase in plan.lanes[lane.number].phases:
            lane.do(phase)
        lane.prove()
    return [
        Traffic(max(lane.steps[rank] for lane in lanes), sum(lane.elements[rank] for lane in lanes))
        for rank in range(plan.grid.size)
    ]


class _LaneRun:
    """One lane of a plan, all ranks at once."""

    def __init__(self, plan: Plan, number: int, span: tuple[int, int], buffers: np.ndarray | None) -> None:
        self.plan, self.number, self.span, self.buffers = plan, number, span, buffers
        size = plan.grid.size
        self.held: list[Holding | None] = [Holding(*span, summed=1 << rank) for rank in range(size)]
        self.steps = [0] * size
        self.elements = [0] * size
        self.phase: Phase | None = None

    def do(self, phase: Phase) -> None:
        """Do one phase on each of its groups."""
        grid = self.plan.grid
        self.phase = phase
        if not 0 <= phase.axis < len(grid.shape):
            self.fail(f"{grid} has no such axis")
        collective = getattr(self, phase.op.value)
        for members in grid.groups(phase.axis):
            if phase.takes_part(grid.coordinates(members[0])):
                collective(members)

    def prove(self) -> None:
        """See that every rank holds the whole sum."""
        everyone = Holding(*self.span, summed=(1 << self.plan.grid.size) - 1)
        for rank, holding in enumerate(self.held):
            if holding != everyone:
                self.fail(f"rank {rank} ends without the whole sum")

    def fail(self, what: str) -> None:
        """Raise PlanError with the place in the plan."""
        where = f"{self.phase.op.value} on axis {self.phase.axis}" if self.phase else "no phase"
        raise PlanError(f"{self.plan.name} on {self.plan.grid}, lane {self.number}, {where}: {what}")

    # The collectives of one group.

    def reduce_scatter(self, members: tuple[int, ...]) -> None:
        """Member i ends with piece i of the sum."""
        before, total = self.sum_of(members)
        for rank, (start, stop) in zip(members, split(before.start, before.stop, len(members))):
            self.forget(rank)
            self.hold(rank, Holding(start, stop, before.summed, outer=replace(before, summed=0)), total, before.start)
            self.count(rank, members, before.length - (stop - start))

    def all_gather(self, members: tuple[int, ...]) -> None:
        """Every member ends with all pieces."""
        holdings = [self.holding(rank) for rank in members]
        first = holdings[0]
        outer = first.outer
        if outer is None:
            self.fail(f"rank {members[0]} holds nothing that was scattered")
            return
        pieces = split(outer.start, outer.stop, len(members))
        for rank, holding, piece in zip(members, holdings, pieces):
            if holding != Holding(*piece, summed=first.summed, outer=outer):
                self.fail(f"rank {rank} does not hold elements {piece[0]} to {piece[1]} of what is gathered")
        gathered = None
        if self.buffers is not None:
            own = [self.buffers[rank, start:stop] for rank, (start, stop) in zip(members, pieces)]
            gathered = np.concatenate(own)
        for place, rank in enumerate(members):
            self.hold(rank, replace(outer, summed=first.summed), gathered, outer.start)
            self.count(rank, members, outer.length - holdings[(place + 1) % len(members)].length)

    def all_reduce(self, members: tuple[int, ...]) -> None:
        """Every member ends with the sum."""
        self.reduce_scatter(members)
        self.all_gather(members)

    def reduce(self, members: tuple[int, ...]) -> None:
        """The first member ends with the sum, the others with nothing."""
        before, total = self.sum_of(members)
        for rank in members:
            self.forget(rank)
            self.count(rank, members, 0 if rank == members[0] else before.length)
        self.hold(members[0], before, total, before.start)

    def broadcast(self, members: tuple[int, ...]) -> None:
        """Every member ends with what the first holds."""
        root = self.holding(members[0])
        values = None if self.buffers is None else self.buffers[members[0], root.start : root.stop].copy()
        for rank in members:
            if rank != members[0] and self.held[rank] is not None:
                self.fail(f"rank {rank} would lose what it holds")
            self.hold(rank, root, values, root.start)
            self.count(rank, members, 0 if rank == members[-1] else root.length)

    # What they are made of.

    def holding(self, rank: int) -> Holding:
        """Return what a member brings; nothing is an error."""
        holding = self.held[rank]
        if holding is None:
            self.fail(f"rank {rank} takes part but holds nothing")
        assert holding is not None
        return holding

    def sum_of(self, members: tuple[int, ...]) -> tuple[Holding, np.ndarray | None]:
        """Return the members' sum; they must hold the same elements, and no gradient twice."""
        first = self.holding(members[0])
        summed = 0
        for rank in members:
            holding = self.holding(rank)
            if replace(holding, summed=0) != replace(first, summed=0):
                self.fail(f"rank {rank} holds other elements than rank {members[0]}")
            if summed & holding.summed:
                self.fail(f"rank {rank} brings gradients that are in the sum already")
            summed |= holding.summed
        total = None
        if self.buffers is not None:
            total = self.buffers[list(members), first.start : first.stop].sum(axis=0, dtype=self.buffers.dtype)
        return replace(first, summed=summed), total

    def forget(self, rank: int) -> None:
        """Leave a rank with nothing, its elements overwritten."""
        holding = self.held[rank]
        if self.buffers is not None and holding is not None:
            self.buffers[rank, holding.start : holding.stop] = -1
        self.held[rank] = None

    def hold(self, rank: int, holding: Holding, values: np.ndarray | None, origin: int) -> None:
        """Give a rank elements out of `values`, which begin at element `origin`."""
        self.held[rank] = holding
        if self.buffers is not None and values is not None:
            start = holding.start - origin
            self.buffers[rank, holding.start : holding.stop] = values[start : start + holding.length]

    def count(self, rank: int, members: tuple[int, ...], elements: int) -> None:
        """Add one collective to a rank's traffic."""
        self.steps[rank] += len(members) - 1
        self.elements[rank] += elements
