import json

import pytest

from tests.mpi.launch import check, mpirun


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_arrays_of_every_framework_are_summed_in_place(ranks):
    check(ranks, "engine.py")


def test_a_table_is_measured_and_read(tmp_path):
    table = tmp_path / "table.json"
    for ranks in (3, 4, 4):
        done = mpirun(ranks, ["nnabla-torus", "bench", "-b", "1K", "-e", "4K", "-f", "4", "-n", "2", "--tune", table])
        assert done.returncode == 0, done.stderr
    worlds = json.loads(table.read_text())["worlds"]
    assert [world["ranks_per_host"] for world in worlds] == [[3], [4]]
    rows = worlds[1]["rows"]
    assert {row["size"] for row in rows} == {1024, 4096}
    assert {(row["algorithm"], row["inside"]) for row in rows} >= {("torus", "shared_memory"), ("torus", "library")}
    best = min((row for row in rows if row["size"] == 4096), key=lambda row: row["time_us"])
    told = check(4, "engine.py", "choice", str(table)).strip()
    assert told == f"{best['algorithm']} ({best['inside']}, {best['between']})"


def test_no_table_is_one_line(tmp_path):
    table = tmp_path / "table.json"
    table.write_text("{")
    done = mpirun(2, ["nnabla-torus", "bench", "-e", "1K", "--tune", table])
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2 and len(told) == 1 and "Invalid JSON" in told[0]
    assert table.read_text() == "{"
