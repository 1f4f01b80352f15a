import pytest

from nnabla_torus.bench.all_reduce import sizes


@pytest.mark.parametrize(
    ("begin", "end", "factor", "expected"),
    [
        (4, 64, 4, [4, 16, 64]),
        (0, 5, 2, [0, 1, 2, 4]),
        (8, 12, 1.01, [8, 9, 10, 11, 12]),
        (1024, 1024, 2, [1024]),
    ],
)
def test_sizes_grow_to_an_end(begin, end, factor, expected):
    assert sizes(begin, end, factor) == expected
