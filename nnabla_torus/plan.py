"""Every all-reduce of the papers as data: a few collectives along the axes of a grid.

    Phase(op, axis, leaders)   one collective along one axis, by all ranks or only by leaders
    Lane(share, phases)        a share of the buffer and its phases, in order
    Plan(name, grid, lanes)    lanes run at the same time, each on groups of its own

    2D torus (Mikami et al. 2018), Y rows of X ranks:

        1 reduce-scatter in rows      2 all-reduce in columns      3 all-gather in rows

          o <- o <- o                   o    o    o                  o -> o -> o
                                        |    |    |
          o <- o <- o                   o    o    o                  o -> o -> o

        each rank now holds           each rank now holds          each rank now holds
        1/X of its row's sum          1/X of the whole sum         the whole sum

This module only says what is to be done. `all_reduce` does it, `reference` proves it, `picture` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from types import MappingProxyType

from nnabla_torus.failure import UserError
from nnabla_torus.grid import Grid


class Op(str, Enum):
    """A collective of one group; `p` is the group's size, `n` the elements that each member brings."""

    REDUCE_SCATTER = "reduce_scatter"  # n elements in, the sum of one's own n/p out
    ALL_REDUCE = "all_reduce"  # n in, the sum of n out
    ALL_GATHER = "all_gather"  # one's own n/p in, everybody's n out
    REDUCE = "reduce"  # n in, the sum of n out at the root
    BROADCAST = "broadcast"  # the root's n out at every member


@dataclass(frozen=True)
class Phase:
    """One collective along `axis`, on each line of the grid along it.

    `leaders` names axes on which only the ranks at coordinate 0 take part: after a reduce along an axis nobody else
    holds a sum. The root of a reduce or a broadcast is the member at coordinate 0 of `axis`.
    """

    op: Op
    axis: int
    leaders: tuple[int, ...] = ()

    def takes_part(self, coordinates: tuple[int, ...]) -> bool:
        """Return whether the rank at these coordinates takes part."""
        return all(coordinates[axis] == 0 for axis in self.leaders)


@dataclass(frozen=True)
class Lane:
    """A share of the buffer and the phases that sum it, in order."""

    share: Fraction
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class Plan:
    """An all-reduce: lanes that run at the same time and together cover the buffer.

    `note` says what a reader of a log should know of it. `library` marks the plan that is left to the library.
    """

    name: str
    grid: Grid
    lanes: tuple[Lane, ...]
    note: str = ""
    library: bool = False

    def __post_init__(self) -> None:
        if sum(lane.share for lane in self.lanes) != 1:
            raise ValueError(
                f"the lanes of {self.name} share {sum(lane.share for lane in self.lanes)} of a buffer, not 1"
            )

    def offsets(self, count: int) -> list[tuple[int, int]]:
        """Return each lane's (start, stop) in a buffer of `count` elements."""
        edges = [Fraction(0)]
        for lane in self.lanes:
            edges.append(edges[-1] + lane.share)
        return [(int(count * start), int(count * stop)) for start, stop in zip(edges, edges[1:])]


def split(start: int, stop: int, parts: int) -> list[tuple[int, int]]:
    """Cut [start, stop) into `parts` pieces in order, whose lengths differ by at most one.

    Every phase cuts its segment so: piece i belongs to the member at coordinate i.
    """
    length = stop - start
    edges = [start + length * part // parts for part in range(parts + 1)]
    return list(zip(edges, edges[1:]))


def _one_lane(*phases: Phase) -> tuple[Lane, ...]:
    return (Lane(Fraction(1), phases),)


def _chain(axes: tuple[int, ...]) -> tuple[Phase, ...]:
    """Reduce-scatter along all axes but the last, all-reduce along the last, all-gather all the way back."""
    *outward, turn = axes
    return (
        *(Phase(Op.REDUCE_SCATTER, axis) for axis in outward),
        Phase(Op.ALL_REDUCE, turn),
        *(Phase(Op.ALL_GATHER, axis) for axis in reversed(outward)),
    )


def _two_axes(name: str, grid: Grid) -> Grid:
    if len(grid.shape) != 2:
        raise UserError(f"{name} needs a grid of 2 axes, as in 2x3, but got {grid} of {len(grid.shape)}")
    return grid


def ring(grid: Grid) -> Plan:
    """Baseline of nnabla and NCCL: all ranks on one ring, whatever the grid.

    A ring all-reduce is a reduce-scatter and an all-gather around the same ring (Patarasuk and Yuan 2009).
    """
    flat = Grid((grid.size,))
    return Plan("ring", flat, _one_lane(Phase(Op.REDUCE_SCATTER, 0), Phase(Op.ALL_GATHER, 0)))


def torus(grid: Grid) -> Plan:
    """2D torus of Mikami et al. 2018: in rows, then in columns on 1/X of the buffer, then back in rows."""
    return Plan("torus", _two_axes("torus", grid), _one_lane(*_chain((1, 0))))


def hierarchical(grid: Grid) -> Plan:
    """Jia et al. 2018 (Tencent): reduce each row to a leader, all-reduce among leaders, broadcast in rows."""
    _two_axes("hierarchical", grid)
    return Plan(
        "hierarchical",
        grid,
        _one_lane(Phase(Op.REDUCE, 1), Phase(Op.ALL_REDUCE, 0, leaders=(1,)), Phase(Op.BROADCAST, 1)),
    )


def multi_dimensional(grid: Grid) -> Plan:
    """IBM DDL (Cho et al. 2017) and BlueConnect: the torus on any number of axes, nearest first."""
    return Plan("multi_dimensional", grid, _one_lane(*_chain(tuple(reversed(range(len(grid.shape)))))))


def halving_doubling(grid: Grid) -> Plan:
    """Halving and doubling (Rabenseifner; Goyal et al. 2017): one axis per prime factor of the ranks, nearest last.

    On a power of two this is recursive halving and doubling; other factors stay rings of their own (12 = 2 x 2 x 3),
    and a prime number of ranks is one ring, which the plan's note says.
    """
    factors = prime_factors(grid.size)
    note = ""
    if len(factors) == 1 and grid.size > 2:
        note = f"{grid.size} ranks cannot be halved: {grid.size} is prime, so this is a ring"
    factored = multi_dimensional(Grid(factors))
    return Plan("halving_doubling", factored.grid, factored.lanes, note)


def mesh(grid: Grid) -> Plan:
    """Two-direction mesh (Ying et al. 2018, TPU pod): half the buffer goes rows first, half columns first, at once."""
    _two_axes("mesh", grid)
    half = Fraction(1, 2)
    return Plan("mesh", grid, (Lane(half, _chain((1, 0))), Lane(half, _chain((0, 1)))))


def native(grid: Grid) -> Plan:
    """Leave the whole all-reduce to the library: MPI_Allreduce on CPUs, NCCL's own on GPUs."""
    return Plan("native", Grid((grid.size,)), _one_lane(Phase(Op.ALL_REDUCE, 0)), library=True)


def prime_factors(number: int) -> tuple[int, ...]:
    """Return the prime factors of a positive number in ascending order, (1,) for 1."""
    factors = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return (*factors, number) if number > 1 or not factors else tuple(factors)


ALGORITHMS: Mapping[str, Callable[[Grid], Plan]] = MappingProxyType(
    {
        algorithm.__name__: algorithm
        for algorithm in (torus, ring, hierarchical, multi_dimensional, halving_doubling, mesh, native)
    }
)


def make_plan(algorithm: str, grid: Grid) -> Plan:
    """Return the plan of a named algorithm on a grid; raises UserError for an unknown name or a grid it cannot use."""
    if algorithm not in ALGORITHMS:
        raise UserError(f"algorithm {algorithm!r} is unknown; choose one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm](grid)
