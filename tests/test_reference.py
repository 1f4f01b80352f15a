"""The proof itself: right plans pass with the published traffic, and every broken one is caught."""

from dataclasses import replace
from fractions import Fraction
from math import prod

import numpy as np
import pytest

from nnabla_torus import reference
from nnabla_torus.grid import Grid
from nnabla_torus.plan import ALGORITHMS, Lane, Op, Phase, Plan, make_plan, prime_factors
from nnabla_torus.reference import PlanError, Traffic

TWO_AXES = ("torus", "hierarchical", "mesh")


def grids(largest):
    """Every way to write 1 to `largest` as a product of axes longer than 1, and every grid of two axes."""

    def factorings(size):
        yield (size,)
        for first in range(2, size):
            if size % first == 0:
                yield from ((first, *rest) for rest in factorings(size // first) if rest != (1,))

    for size in range(1, largest + 1):
        yield from {*factorings(size), *((size // x, x) for x in range(1, size + 1) if size % x == 0)}


def plans(shape):
    return [make_plan(name, Grid(shape)) for name in ALGORITHMS if len(shape) == 2 or name not in TWO_AXES]


def test_every_plan_on_every_shape_up_to_64_ranks():
    shapes = list(grids(64))
    assert (64,) in shapes and (2, 2, 2, 2, 2, 2) in shapes and (1, 61) in shapes and (3, 4, 5) in shapes
    for shape in shapes:
        size = prod(shape)
        for plan in plans(shape):
            for count in (0, 1, size + 1):
                reference.check(plan, count)


@pytest.mark.parametrize("shape", [(1,), (2, 2), (3, 2), (5,), (1, 7), (2, 2, 3), (3, 4)])
def test_the_sum_is_numpys(shape):
    size = prod(shape)
    for count in (0, 1, size - 1, size, size + 1, 31, 101):
        inputs = np.random.default_rng(count).integers(-1000, 1000, (size, count))
        for plan in plans(shape):
            outputs = reference.all_reduce(plan, inputs)
            np.testing.assert_array_equal(outputs, np.broadcast_to(inputs.sum(0), inputs.shape), plan.name)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sonys_2176_ranks(algorithm):
    inputs = np.random.default_rng(0).integers(-1000, 1000, (2176, 2176))
    outputs = reference.all_reduce(make_plan(algorithm, Grid((34, 64))), inputs)
    assert (outputs == inputs.sum(0)).all()


# Traffic, worked by hand from the formulas: (steps, elements sent) of a rank that sends most.
BY_HAND = [
    # 2 x 3 ranks, 60 elements. Torus: RS x 2 steps, 40 sent; AR y on 20: 2 steps, 20; AG x 2 steps, 40.
    ("torus", (2, 3), 60, 6, 100),
    ("ring", (2, 3), 60, 10, 100),  # 2(6-1) steps, 2 * 5/6 * 60
    # Reduce x: 2 steps, 60 from each but the leader; AR y among leaders: 2 steps, 60; broadcast x: 2 steps, 60.
    ("hierarchical", (2, 3), 60, 6, 120),
    ("multi_dimensional", (2, 3), 60, 6, 100),
    ("halving_doubling", (2, 3), 60, 6, 100),
    # Each half of 30: RS x 20, AR y on 10: 10, AG x 20; the other half RS y 15, AR x on 15: 20, AG y 15.
    ("mesh", (2, 3), 60, 6, 100),
    # 4 x 4 ranks, 64 elements: 3 + 6 + 3 steps, 48 + 24 + 48 elements.
    ("torus", (4, 4), 64, 12, 120),
    ("ring", (4, 4), 64, 30, 120),
    ("halving_doubling", (4, 4), 64, 8, 120),  # 2 log2(16)
    # 2 x 2 x 3 ranks, 120 elements: RS 2 steps 80; RS 1 step 20; AR on 20: 2 steps 20; AG 20; AG 80.
    ("multi_dimensional", (2, 2, 3), 120, 8, 220),
    # Sony's reading: 1024 = 32 x 32 takes 124 steps where the ring takes 2046.
    ("torus", (32, 32), 1024, 124, 2046),
    ("ring", (32, 32), 1024, 2046, 2046),
]


@pytest.mark.parametrize(("algorithm", "shape", "count", "steps", "elements"), BY_HAND)
def test_traffic_worked_by_hand(algorithm, shape, count, steps, elements):
    traffic = reference.check(make_plan(algorithm, Grid(shape)), count)
    assert max(rank.steps for rank in traffic) == steps
    assert max(rank.elements for rank in traffic) == elements


def closed_form(algorithm, shape, count):
    """Steps and elements sent per rank in published.md's costs, for counts that every axis divides."""
    size = prod(shape)
    if algorithm in ("ring", "native"):
        return 2 * (size - 1), Fraction(2 * (size - 1), size) * count
    if algorithm == "hierarchical":
        y, x = shape
        return 2 * (x - 1) + 2 * (y - 1), None
    axes = {"halving_doubling": prime_factors(size)}.get(algorithm, shape)
    steps, elements, part = 0, Fraction(0), Fraction(count)
    for length in reversed(axes):
        steps += 2 * (length - 1)
        elements += Fraction(2 * (length - 1), length) * part
        part /= length
    return steps, elements


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (2, 3), (3, 4), (8, 8), (12,), (2, 3, 4), (4, 16, 4)])
def test_traffic_is_the_closed_form(shape):
    count = 2 * prod(shape)
    for plan in plans(shape):
        steps, elements = closed_form(plan.name, shape, count)
        for traffic in reference.check(plan, count):
            if plan.name == "hierarchical":
                assert traffic.steps <= steps
            else:
                assert traffic == Traffic(steps, elements), plan.name


def test_hierarchical_carries_the_whole_buffer_between_leaders():
    y, x, count = 4, 3, 24
    traffic = reference.check(make_plan("hierarchical", Grid((y, x))), count)
    for rank, (steps, elements) in enumerate((t.steps, t.elements) for t in traffic):
        leader, last = rank % x == 0, rank % x == x - 1
        assert steps == 2 * (x - 1) + (2 * (y - 1) if leader else 0)
        between = 2 * (y - 1) * count // y if leader else 0  # S, where the torus's columns carry S / X
        assert elements == between + (0 if leader else count) + (0 if last else count)


# Plans broken on purpose.


def broken(plan, lane, phases):
    lanes = list(plan.lanes)
    lanes[lane] = replace(lanes[lane], phases=tuple(phases))
    return replace(plan, lanes=tuple(lanes))


def is_caught(plan, original, count=48):
    """Not the sum, or the sum at another price than the plan's."""
    try:
        return reference.check(plan, count) != reference.check(original, count)
    except PlanError:
        return True


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2), (4, 3)])
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS])
def test_a_dropped_phase_is_caught(algorithm, shape):
    plan = make_plan(algorithm, Grid(shape))
    for number, lane in enumerate(plan.lanes):
        for dropped in range(len(lane.phases)):
            rest = lane.phases[:dropped] + lane.phases[dropped + 1 :]
            with pytest.raises(PlanError):
                reference.check(broken(plan, number, rest), 48)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2), (4, 3)])
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS])
def test_swapped_phases_are_caught(algorithm, shape):
    plan = make_plan(algorithm, Grid(shape))
    for number, lane in enumerate(plan.lanes):
        for first in range(len(lane.phases)):
            for second in range(first):
                swapped = list(lane.phases)
                swapped[first], swapped[second] = swapped[second], swapped[first]
                assert is_caught(broken(plan, number, swapped), plan), (first, second)


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (2, 2), (4, 3)])
@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS])
def test_a_phase_on_the_wrong_axis_is_caught(algorithm, shape):
    plan = make_plan(algorithm, Grid(shape))
    for number, lane in enumerate(plan.lanes):
        for position, phase in enumerate(lane.phases):
            for axis in range(len(plan.grid.shape) + 1):
                if axis != phase.axis:
                    wrong = list(lane.phases)
                    wrong[position] = replace(phase, axis=axis)
                    with pytest.raises(PlanError):
                        reference.check(broken(plan, number, wrong), 48)


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ([Phase(Op.ALL_REDUCE, 1), Phase(Op.ALL_REDUCE, 1)], "already"),
        ([Phase(Op.ALL_GATHER, 1)], "nothing that was scattered"),
        ([Phase(Op.REDUCE_SCATTER, 1), Phase(Op.ALL_REDUCE, 1)], "other elements"),
        ([Phase(Op.REDUCE, 1), Phase(Op.ALL_REDUCE, 0)], "holds nothing"),
        ([Phase(Op.BROADCAST, 1)], "would lose"),
        ([Phase(Op.REDUCE, 1), Phase(Op.ALL_REDUCE, 0, leaders=(1,))], "without the whole sum"),
        ([Phase(Op.ALL_REDUCE, 2)], "no such axis"),
    ],
)
def test_what_went_wrong_is_said(phases, reason):
    plan = Plan("wrong", Grid((2, 2)), (Lane(Fraction(1), tuple(phases)),))
    with pytest.raises(PlanError, match=reason):
        reference.check(plan, 8)


def test_what_a_collective_leaves_undefined_is_overwritten():
    """A plan whose proof is bypassed must not come out right by luck."""
    plan = Plan("half", Grid((2,)), (Lane(Fraction(1), (Phase(Op.REDUCE_SCATTER, 0),)),))
    buffers = np.ones((2, 4), int)
    with pytest.raises(PlanError, match="without the whole sum"):
        reference._run(plan, 4, buffers)
    assert buffers.tolist() == [[2, 2, -1, -1], [-1, -1, 2, 2]]
