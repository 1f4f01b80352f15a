from fractions import Fraction

import pytest

from nnabla_torus.failure import UserError
from nnabla_torus.grid import Grid
from nnabla_torus.plan import ALGORITHMS, Lane, Op, Phase, Plan, make_plan, prime_factors, split

RS, AR, AG = Op.REDUCE_SCATTER, Op.ALL_REDUCE, Op.ALL_GATHER


def phases(algorithm, *shape):
    plan = make_plan(algorithm, Grid(shape))
    return [[(phase.op, phase.axis, phase.leaders) for phase in lane.phases] for lane in plan.lanes]


def test_torus_is_rows_columns_rows():
    assert phases("torus", 2, 3) == [[(RS, 1, ()), (AR, 0, ()), (AG, 1, ())]]


def test_ring_ignores_the_grid():
    assert phases("ring", 2, 3) == [[(RS, 0, ()), (AG, 0, ())]]
    assert make_plan("ring", Grid((2, 3))).grid == Grid((6,))


def test_hierarchical_lets_only_leaders_into_the_middle():
    assert phases("hierarchical", 2, 3) == [[(Op.REDUCE, 1, ()), (AR, 0, (1,)), (Op.BROADCAST, 1, ())]]
    middle = make_plan("hierarchical", Grid((2, 3))).lanes[0].phases[1]
    assert [middle.takes_part(Grid((2, 3)).coordinates(rank)) for rank in range(6)] == [True, False, False] * 2


def test_multi_dimensional_goes_from_the_nearest_axis_out_and_back():
    assert phases("multi_dimensional", 8, 8, 4) == [[(RS, 2, ()), (RS, 1, ()), (AR, 0, ()), (AG, 1, ()), (AG, 2, ())]]
    assert phases("multi_dimensional", 6) == [[(AR, 0, ())]]


@pytest.mark.parametrize(
    ("size", "factors", "says_so"),
    [(1, (1,), False), (2, (2,), False), (8, (2, 2, 2), False), (12, (2, 2, 3), False), (7, (7,), True)],
)
def test_halving_doubling_takes_the_prime_factors(size, factors, says_so):
    plan = make_plan("halving_doubling", Grid((1, size)))
    assert plan.grid.shape == factors
    assert ("prime" in plan.note) == says_so


def test_mesh_sends_its_halves_in_opposite_order():
    assert phases("mesh", 2, 3) == [
        [(RS, 1, ()), (AR, 0, ()), (AG, 1, ())],
        [(RS, 0, ()), (AR, 1, ()), (AG, 0, ())],
    ]
    assert make_plan("mesh", Grid((2, 3))).offsets(7) == [(0, 3), (3, 7)]


def test_native_is_left_to_the_library():
    plan = make_plan("native", Grid((2, 3)))
    assert plan.library
    assert phases("native", 2, 3) == [[(AR, 0, ())]]
    assert not any(make_plan(name, Grid((2, 3))).library for name in ALGORITHMS if name != "native")


def test_plans_carry_their_algorithms_name():
    assert {name: make_plan(name, Grid((2, 3))).name for name in ALGORITHMS} == {name: name for name in ALGORITHMS}


@pytest.mark.parametrize("algorithm", ["torus", "hierarchical", "mesh"])
@pytest.mark.parametrize("shape", [(4,), (2, 2, 1)])
def test_two_axes_are_asked_for(algorithm, shape):
    with pytest.raises(UserError, match=f"{algorithm} needs a grid of 2 axes"):
        make_plan(algorithm, Grid(shape))


def test_an_unknown_algorithm_is_named_beside_those_there_are():
    with pytest.raises(UserError, match="algorithm 'tours' is unknown; choose one of torus, ring"):
        make_plan("tours", Grid((2, 2)))


def test_lanes_must_share_the_whole_buffer():
    lane = Lane(Fraction(1, 3), (Phase(AR, 0),))
    with pytest.raises(ValueError, match="share 2/3 of a buffer"):
        Plan("two_thirds", Grid((2,)), (lane, lane))


@pytest.mark.parametrize(
    ("span", "parts", "pieces"),
    [
        ((0, 6), 3, [(0, 2), (2, 4), (4, 6)]),
        ((10, 17), 3, [(10, 12), (12, 14), (14, 17)]),
        ((5, 6), 3, [(5, 5), (5, 5), (5, 6)]),
        ((4, 4), 2, [(4, 4), (4, 4)]),
    ],
)
def test_pieces_are_in_order_and_differ_by_at_most_one(span, parts, pieces):
    assert split(*span, parts) == pieces


def test_prime_factors():
    assert {number: prime_factors(number) for number in (1, 2, 12, 97, 2176)} == {
        1: (1,),
        2: (2,),
        12: (2, 2, 3),
        97: (97,),
        2176: (2, 2, 2, 2, 2, 2, 2, 17),
    }
