"""Collectives of one group of ranks on numpy views. No nnabla here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

# Begins and finishes one collective that was prepared for one view; may be called any number of times.
Start = Callable[[], None]

# (start, stop) of each member's piece of a view, in the group's order.
Pieces = Sequence[tuple[int, int]]


class Collectives(Protocol):
    """What a group of ranks can do with views that have the same length and dtype on every member.

    Like MPI 4's persistent collectives each is prepared once for a view and then started many times. All work in place.
    The root of a reduce and of a broadcast is the group's first member. `one_pass` says that a reduce-scatter with its
    own all-gather right behind it is better done as one all-reduce.
    """

    rank: int
    size: int
    one_pass: bool

    def reduce_scatter(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Leave the sum of its own piece on each member; the rest of the view is undefined."""

    def all_gather(self, view: np.ndarray, pieces: Pieces) -> Start:
        """Leave every member's piece on each member."""

    def all_reduce(self, view: np.ndarray) -> Start:
        """Leave the sum of the view on each member, bitwise the same."""

    def reduce(self, view: np.ndarray) -> Start:
        """Leave the sum of the view on the first member; the others' is undefined."""

    def broadcast(self, view: np.ndarray) -> Start:
        """Leave the first member's view on each member."""

    def close(self) -> None:
        """Give back what the group holds; every member must."""
