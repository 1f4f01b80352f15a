"""Learning rates and momenta as pure functions of the samples seen.

    warm_up                  step                  polynomial, cosine        piecewise
         /----               ----                  -.                          /\\
        /                        |----              `-.                       /  \\___
       /                              |----            `--____               /

Every schedule counts samples from the start of the run; an epoch is that many samples of the data set.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence

# The value for the next step, given the samples seen before it.
Schedule = Callable[[float], float]


def constant(value: float) -> Schedule:
    """Return the same value always."""
    return lambda seen: value


def linear(start: float, stop: float, first: float, last: float) -> Schedule:
    """Go from `first` at `start` to `last` at `stop` samples on a line; constant outside."""
    return polynomial(start, stop, first, last, power=1)


def polynomial(start: float, stop: float, first: float, last: float, power: float) -> Schedule:
    """Go from `first` to `last` as last + (first - last)·(1 - progress)^power; constant outside [start, stop]."""
    return lambda seen: last + (first - last) * (1 - _progress(seen, start, stop)) ** power


def cosine(start: float, stop: float, first: float, last: float) -> Schedule:
    """Go from `first` to `last` on half a cosine wave (Loshchilov and Hutter 2017); constant outside [start, stop]."""
    return lambda seen: last + (first - last) * (1 + math.cos(math.pi * _progress(seen, start, stop))) / 2


def step(value: float, edges: Sequence[float], values: Sequence[float]) -> Schedule:
    """Hold `value`, then values[i] from edges[i] samples on; edges ascend."""
    return lambda seen: [value, *values][bisect.bisect_right(edges, seen)]


def piecewise(points: Sequence[tuple[float, float]]) -> Schedule:
    """Go on lines through (samples, value) points, whose samples ascend; constant outside."""
    edges = [samples for samples, _ in points]

    def at(seen: float) -> float:
        right = bisect.bisect_right(edges, seen)
        if right in (0, len(points)):
            return points[min(right, len(points) - 1)][1]
        (start, first), (stop, last) = points[right - 1], points[right]
        return linear(start, stop, first, last)(seen)

    return at


def warm_up(length: float, first: float, then: Schedule) -> Schedule:
    """Go from `first` on a line to what `then` gives after `length` samples, and go on with it (Goyal et al. 2017)."""
    return composed([linear(0, length, first, then(length)), then], [length])


def composed(schedules: Sequence[Schedule], edges: Sequence[float]) -> Schedule:
    """Follow schedules[0], and schedules[i + 1] from edges[i] samples on; edges ascend."""
    return lambda seen: schedules[bisect.bisect_right(edges, seen)](seen)


def _progress(seen: float, start: float, stop: float) -> float:
    """Return how much of [start, stop] is behind, 0 to 1; an empty range is behind as soon as it is reached."""
    if seen >= stop:
        return 1.0
    return max(0.0, (seen - start) / (stop - start))
