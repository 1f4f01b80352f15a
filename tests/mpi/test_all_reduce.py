import pytest

from tests.mpi.launch import check


@pytest.mark.parametrize("ranks", range(1, 13))
def test_every_plan_on_every_grid_gives_the_plain_sum(ranks):
    assert int(check(ranks, "all_reduce.py", timeout=240).split()[0]) > 100
