"""Ranks laid out on a grid.

Grids are row-major: the last axis is the fastest and the nearest (the GPUs of one host), the first the farthest.
A 2D torus of Y rows and X columns is the grid (Y, X), written YxX:

              axis 1 (X, a row: near)
            +------------------------>
            |   0    1    2    3
    axis 0  |   4    5    6    7        Grid((3, 4)), "3x4"
    (Y, a   |   8    9   10   11
    column) v
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nnabla_torus.failure import UserError


@dataclass(frozen=True)
class Grid:
    """A row-major grid of ranks: `shape` holds the ranks along each axis, farthest first.

    Raises UserError unless there is at least one axis and every length is at least 1.
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.shape or any(length < 1 for length in self.shape):
            raise UserError(f"grid {self} has an axis without ranks; every axis needs at least 1")

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) or "()"

    @cached_property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.shape)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Distance in ranks between neighbours along each axis."""
        return tuple(math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """Return where a rank stands, one coordinate per axis."""
        if not 0 <= rank < self.size:
            raise ValueError(f"rank {rank} is not on the grid {self} of {self.size} ranks")
        return tuple(rank // stride % length for stride, length in zip(self.strides, self.shape))

    def rank(self, coordinates: Sequence[int]) -> int:
        """Return the rank that stands at the coordinates."""
        if len(coordinates) != len(self.shape) or any(
            not 0 <= coordinate < length for coordinate, length in zip(coordinates, self.shape)
        ):
            raise ValueError(f"coordinates {tuple(coordinates)} are not on the grid {self}")
        return sum(coordinate * stride for coordinate, stride in zip(coordinates, self.strides))

    def group(self, rank: int, axis: int) -> tuple[int, ...]:
        """Return the ranks on the line through `rank` along `axis`, in order of that coordinate."""
        stride = self.strides[axis]
        first = rank - self.coordinates(rank)[axis] * stride
        return tuple(range(first, first + stride * self.shape[axis], stride))

    def groups(self, axis: int) -> list[tuple[int, ...]]:
        """Return all lines along `axis`; together they hold every rank once."""
        return [self.group(rank, axis) for rank in range(self.size) if self.coordinates(rank)[axis] == 0]


def parse_grid(text: str, size: int, ranks_per_host: Sequence[int] = ()) -> Grid:
    """Return the grid that a user wrote: "auto", or the lengths of its axes as in "2x3".

    `ranks_per_host` is the number of ranks on each host, in rank order; () means one host.
    Raises UserError when the text is no grid or its product is not `size`.
    """
    if text == "auto":
        return squarest(size, ranks_per_host)
    grid = written_grid(text)
    if grid.size != size:
        raise UserError(
            f"grid {text} needs {grid.size} ranks but there are {size}; write a grid whose product is {size}"
        )
    return grid


def written_grid(text: str) -> Grid:
    """Return the grid that lengths as in "2x3" describe; raises UserError for other text."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise UserError(f"grid {text!r} is not a grid; write auto, or lengths as in 2x3, farthest axis first")
    return Grid(tuple(map(int, text.split("x"))))


def squarest(size: int, ranks_per_host: Sequence[int] = ()) -> Grid:
    """Return the most square Y x X for `size` ranks whose rows fit the hosts.

    A row fits when its length X divides, or is a multiple of, the ranks of every host: then no row is cut by a host's
    edge needlessly. Of two equally square grids the one with longer rows is taken, since the vertical phase then
    carries less (1/X of the buffer). A prime world, or one that only 1 x X fits, becomes one row.
    """
    hosts = [ranks for ranks in ranks_per_host if ranks] or [size]
    fitting = [
        length
        for length in range(2, size)
        if size % length == 0 and all(ranks % length == 0 or length % ranks == 0 for ranks in hosts)
    ]
    row = min(fitting, key=lambda length: (abs(length - size // length), -length), default=size)
    return Grid((size // row, row))


def ranks_per_host(hosts: Sequence[object]) -> tuple[int, ...]:
    """Return how many ranks each host has, from every rank's host in rank order; hosts in order of first appearance."""
    return tuple(hosts.count(host) for host in dict.fromkeys(hosts))
