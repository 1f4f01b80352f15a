import pytest

from nnabla_torus.failure import UserError
from nnabla_torus.grid import Grid, parse_grid, ranks_per_host, squarest


def test_rows_are_the_last_and_fastest_axis():
    grid = Grid((2, 3))
    assert [grid.coordinates(rank) for rank in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert grid.group(4, axis=1) == (3, 4, 5)
    assert grid.group(4, axis=0) == (1, 4)
    assert grid.groups(0) == [(0, 3), (1, 4), (2, 5)]
    assert grid.groups(1) == [(0, 1, 2), (3, 4, 5)]


def test_three_axes():
    grid = Grid((2, 3, 4))
    assert grid.strides == (12, 4, 1)
    assert grid.coordinates(23) == (1, 2, 3)
    assert grid.rank((1, 0, 2)) == 14
    assert grid.group(14, axis=1) == (14, 18, 22)
    assert str(grid) == "2x3x4"


@pytest.mark.parametrize("shape", [(1,), (7,), (1, 5), (5, 1), (2, 3), (3, 2, 2), (34, 64)])
def test_coordinates_and_ranks_are_inverse_and_groups_partition(shape):
    grid = Grid(shape)
    assert [grid.rank(grid.coordinates(rank)) for rank in range(grid.size)] == list(range(grid.size))
    for axis in range(len(shape)):
        lines = grid.groups(axis)
        assert sorted(rank for line in lines for rank in line) == list(range(grid.size))
        assert {len(line) for line in lines} == {shape[axis]}
        for line in lines:
            others = {tuple(c for a, c in enumerate(grid.coordinates(rank)) if a != axis) for rank in line}
            assert len(others) == 1


@pytest.mark.parametrize(("rank", "size"), [(-1, 6), (6, 6)])
def test_a_rank_off_the_grid_is_named(rank, size):
    with pytest.raises(ValueError, match=f"rank {rank} is not on the grid 2x3 of {size} ranks"):
        Grid((2, 3)).coordinates(rank)


@pytest.mark.parametrize("coordinates", [(0,), (0, 3), (2, 0), (-1, 0), (0, 0, 0)])
def test_coordinates_off_the_grid_are_named(coordinates):
    with pytest.raises(ValueError, match="not on the grid 2x3"):
        Grid((2, 3)).rank(coordinates)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, -1)])
def test_an_axis_needs_ranks(shape):
    with pytest.raises(UserError, match="every axis needs at least 1"):
        Grid(shape)


@pytest.mark.parametrize(
    ("size", "hosts", "expected"),
    [
        (1, (), (1, 1)),
        (2, (), (1, 2)),
        (3, (), (1, 3)),
        (4, (), (2, 2)),
        (6, (), (2, 3)),
        (7, (), (1, 7)),
        (8, (), (2, 4)),
        (12, (), (3, 4)),
        (16, (4, 4, 4, 4), (4, 4)),
        (16, (8, 8), (4, 4)),
        (24, (8, 8, 8), (6, 4)),  # 4 divides 8; 6 would be cut by the hosts' edges
        (64, (4,) * 16, (8, 8)),  # a row of 8 is two whole hosts
        (2176, (4,) * 544, (34, 64)),  # of 32, 64 and 68, which fit hosts of 4, the squarest
        (6, (3, 3), (2, 3)),
        (6, (2, 2, 2), (3, 2)),
        (9, (4, 3, 2), (1, 9)),  # nothing fits uneven hosts: one row
    ],
)
def test_auto_takes_the_squarest_grid_whose_rows_fit_the_hosts(size, hosts, expected):
    assert squarest(size, hosts).shape == expected


def test_every_size_has_an_automatic_grid():
    for size in range(1, 200):
        grid = squarest(size)
        assert grid.size == size
        assert len(grid.shape) == 2


def test_written_grids():
    assert parse_grid("2x3", 6).shape == (2, 3)
    assert parse_grid("12", 12).shape == (12,)
    assert parse_grid("2x2x3", 12).shape == (2, 2, 3)
    assert parse_grid("auto", 6).shape == (2, 3)


def test_a_grid_that_does_not_fit_says_both_numbers():
    with pytest.raises(UserError, match="grid 2x3 needs 6 ranks but there are 4"):
        parse_grid("2x3", 4)


@pytest.mark.parametrize("text", ["", "x", "2x", "x2", "0x4", "2x-2", "2 x 2", "two", "2.0x2", "2X2"])
def test_what_is_no_grid_is_named(text):
    with pytest.raises(UserError, match="is not a grid; write auto"):
        parse_grid(text, 4)


def test_ranks_per_host_counts_in_order_of_appearance():
    assert ranks_per_host(["b", "b", "a", "b"]) == (3, 1)
    assert ranks_per_host([]) == ()
