from pathlib import Path

from nnabla_torus.grid import Grid
from nnabla_torus.picture import draw
from nnabla_torus.plan import ALGORITHMS, make_plan

TORUS = """\
torus on 2x3: 6 steps, each rank sends up to 1.67 x the buffer

at first every rank holds its own gradients
    0 ++++++     1 ++++++     2 ++++++
    3 ++++++     4 ++++++     5 ++++++

reduce-scatter along axis 1
    0 ++.... --- 1 ..++.. --- 2 ....++
    3 ++.... --- 4 ..++.. --- 5 ....++

all-reduce along axis 0
    0 ##....     1 ..##..     2 ....##
    |            |            |
    3 ##....     4 ..##..     5 ....##

all-gather along axis 1
    0 ###### --- 1 ###### --- 2 ######
    3 ###### --- 4 ###### --- 5 ######

. not held   + summed over some ranks   # summed over all ranks"""


def test_the_torus_as_in_the_readme():
    assert draw(make_plan("torus", Grid((2, 3)))) == TORUS


def test_only_leaders_are_joined():
    picture = draw(make_plan("hierarchical", Grid((2, 2))))
    assert ("all-reduce along axis 0, leaders only\n    0 ####     1 ....\n    |\n    2 ####     3 ....\n") in picture


def test_planes_of_three_axes_are_apart():
    picture = draw(make_plan("multi_dimensional", Grid((2, 2, 1))))
    assert ("reduce-scatter along axis 1\n    0 ++..\n    |\n    1 ..++\n\n    2 ++..\n    |\n    3 ..++\n") in picture


def test_lanes_and_notes_are_told():
    assert "lane 2: all-reduce along axis 1" in draw(make_plan("mesh", Grid((2, 2))))
    assert "7 is prime" in draw(make_plan("halving_doubling", Grid((7,))))


def test_a_large_grid_is_told_in_words():
    picture = draw(make_plan("torus", Grid((34, 64)))).splitlines()
    assert picture[2] == "reduce-scatter along axis 1: rank 0 has 0.0156 of it, summed over 64 ranks"
    assert picture[3] == "all-reduce along axis 0: rank 0 has 0.0156 of it, summed over 2176 ranks"
    assert len(picture) == 5


def test_no_line_is_wider_than_a_screen_at_a_laptops_size():
    for algorithm in ALGORITHMS:
        assert max(map(len, draw(make_plan(algorithm, Grid((2, 4)))).splitlines())) <= 130


def test_the_readme_shows_what_is_drawn():
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert TORUS in readme
    ring, torus = draw(make_plan("ring", Grid((34, 64)))), draw(make_plan("torus", Grid((34, 64))))
    assert "4350 steps" in ring and "192 steps" in torus and "takes 4,350, the torus 192" in readme
