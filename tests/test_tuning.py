import json

import pytest

from nnabla_torus.failure import UserError
from nnabla_torus.grid import Grid
from nnabla_torus.means import Means
from nnabla_torus.plan import make_plan
from nnabla_torus.tuning import CHOOSING, Choice, Row, Table, World, fastest, read_table, untuned

SQUARE = Grid((2, 2))


def row(size, algorithm, time_us, inside="shared_memory", between="library"):
    grid = str(make_plan(algorithm, SQUARE).grid)
    return Row(size=size, algorithm=algorithm, grid=grid, inside=inside, between=between, time_us=time_us)


FOUR = World(
    ranks_per_host=(4,),
    rows=(
        row(1024, "ring", 20),
        row(1024, "torus", 30),
        row(65536, "ring", 90, "library"),
        row(65536, "torus", 80),
        row(65536, "hierarchical", 85, "library", "ring"),
    ),
)


def test_the_fastest_at_the_nearest_measured_size_is_taken():
    table = Table(worlds=(FOUR,))
    assert fastest(table, (4,), 1, CHOOSING["auto"], SQUARE) == Choice("ring", Means())
    assert fastest(table, (4,), 8191, CHOOSING["auto"], SQUARE) == Choice("ring", Means())
    assert fastest(table, (4,), 8193, CHOOSING["auto"], SQUARE) == Choice("torus", Means())
    assert fastest(table, (4,), 10**9, CHOOSING["auto"], SQUARE) == Choice("torus", Means())
    assert fastest(table, (4,), 0, CHOOSING["auto"], SQUARE) == Choice("ring", Means())


def test_jias_hybrid_chooses_between_ring_and_hierarchical():
    table = Table(worlds=(FOUR,))
    assert fastest(table, (4,), 1024, CHOOSING["hybrid"], SQUARE).algorithm == "ring"
    assert fastest(table, (4,), 65536, CHOOSING["hybrid"], SQUARE) == Choice("hierarchical", Means("library", "ring"))


def test_other_worlds_are_not_guessed_from():
    assert fastest(Table(worlds=(FOUR,)), (2, 2), 1024, CHOOSING["auto"], SQUARE) is None
    assert fastest(Table(worlds=(FOUR,)), (4,), 1024, ("mesh",), SQUARE) is None
    assert fastest(Table(), (4,), 1024, CHOOSING["auto"], SQUARE) is None


def test_a_grid_that_was_not_measured_is_not_guessed_from():
    table = Table(worlds=(FOUR,))
    assert fastest(table, (4,), 65536, ("torus", "hierarchical"), Grid((4, 1))) is None
    assert fastest(table, (4,), 65536, CHOOSING["auto"], Grid((4, 1))).algorithm == "ring"  # whatever the grid


def test_a_new_measurement_takes_the_place_of_the_old():
    other = World(ranks_per_host=(2, 2), rows=(row(4, "torus", 1),))
    again = World(ranks_per_host=(4,), rows=(row(4, "mesh", 1),))
    assert Table(worlds=(FOUR, other)).with_world(again).worlds == (other, again)


def test_untuned_one_host_goes_in_one_pass_and_several_by_the_torus():
    assert untuned((4,), CHOOSING["auto"]).algorithm == "ring"
    assert untuned((4, 4), CHOOSING["auto"]).algorithm == "torus"
    assert untuned((4, 4), CHOOSING["hybrid"]).algorithm == "hierarchical"
    assert untuned((4, 4), ("multi_dimensional", "ring")).algorithm == "multi_dimensional"


def test_a_table_survives_its_file(tmp_path):
    file = tmp_path / "table.json"
    file.write_text(Table(worlds=(FOUR,)).model_dump_json())
    assert read_table(file) == Table(worlds=(FOUR,))
    first = json.loads(file.read_text())["worlds"][0]["rows"][0]
    assert list(first) == ["size", "algorithm", "grid", "inside", "between", "time_us"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "Invalid JSON"),
        ("[]", "should be"),
        ('{"worlds": [{"ranks_per_host": [4]}]}', "worlds.0.rows: Field required"),
        ('{"worlds": [{"ranks_per_host": [0], "rows": []}]}', "worlds.0.ranks_per_host.0"),
        ('{"worlds": [], "more": 1}', "more: Extra inputs"),
        ("\x00\xff", "Invalid JSON"),
    ],
)
def test_what_is_no_table_is_told_in_one_line(tmp_path, content, message):
    file = tmp_path / "table.json"
    file.write_text(content)
    with pytest.raises(UserError, match=message) as raised:
        read_table(file)
    assert "\n" not in str(raised.value) and str(file) in str(raised.value)


def test_a_missing_table_is_told(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_table(tmp_path / "none.json")


def test_unknown_means_are_named():
    with pytest.raises(UserError, match="means inside hosts 'pigeon' is unknown; choose one of shared_memory, library"):
        Means(inside="pigeon")
    with pytest.raises(UserError, match="means between hosts 'shared_memory' is unknown"):
        Means(between="shared_memory")
