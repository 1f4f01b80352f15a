import json

import pytest

from tests.mpi.launch import mpirun


def test_a_table_and_json_of_every_algorithm(tmp_path):
    report = tmp_path / "bench.json"
    done = mpirun(
        4, ["nnabla-torus", "bench", "-b", "4", "-e", "4K", "-f", "32", "-n", "3", "-w", "1", "--json", report]
    )
    assert done.returncode == 0, done.stderr
    written = json.loads(report.read_text())
    assert written["environment"]["ranks"] == 4 and written["environment"]["ranks_per_host"] == [4]
    results = written["results"]
    names = ["torus", "ring", "hierarchical", "multi_dimensional", "halving_doubling", "mesh", "mpi"]
    assert [(row["size"], row["algorithm"]) for row in results] == [(s, n) for s in (4, 128, 4096) for n in names]
    for row in results:
        assert list(row) == [
            "size", "count", "dtype", "algorithm", "grid", "time_us", "p99_us", "algbw", "busbw", "wrong",
        ]  # fmt: skip
        assert row["count"] * 4 == row["size"] and row["wrong"] == 0
        assert row["p99_us"] >= row["time_us"] > 0
        assert row["algbw"] == pytest.approx(row["size"] / row["time_us"] / 1e3)
        assert row["busbw"] == pytest.approx(row["algbw"] * 2 * 3 / 4)
    assert {row["algorithm"]: row["grid"] for row in results}["torus"] == "2x2"
    table = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [line[4] for line in table[2:]] == [row["algorithm"] for row in results]


def test_sizes_grids_and_dtypes_as_asked():
    sizes = ["-b", "1K", "-e", "4K", "-f", "2", "-n", "1", "-w", "0", "-c", "0"]
    what = ["--grid", "2x3", "--algorithms", "torus,mpi", "--dtype", "float16"]
    done = mpirun(6, ["nnabla-torus", "bench", *sizes, *what])
    rows = [line.split() for line in done.stdout.splitlines() if " sum " in line]
    assert [row[:6] for row in rows] == [
        [str(size), str(size // 2), "float16", "sum", algorithm, grid]
        for size in (1024, 2048, 4096)
        for algorithm, grid in (("torus", "2x3"), ("mpi", "6"))
    ]
    assert {row[-1] for row in rows} == {"N/A"}


def test_a_prime_world_says_that_it_cannot_be_halved():
    done = mpirun(5, ["nnabla-torus", "bench", "-e", "1K", "-n", "1", "--algorithms", "halving_doubling"])
    assert "# halving_doubling: 5 ranks cannot be halved: 5 is prime, so this is a ring" in done.stdout


def test_it_does_not_import_nnabla(tmp_path):
    program = tmp_path / "bench.py"
    program.write_text(
        "import sys\nfrom nnabla_torus.cli import main\nsys.argv = ['nnabla-torus', 'bench', '-e', '1K', '-n', '1']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "assert 'nnabla_torus' in sys.modules and 'nnabla' not in sys.modules\n"
    )
    done = mpirun(2, [program])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "3x2"], "grid 3x2 needs 6 ranks but there are 2"),
        (["--grid", "2", "--algorithms", "torus"], "torus needs a grid of 2 axes"),
        (["--algorithms", "tours"], "--algorithms: 'tours' is unknown"),
        (["-b", "1X"], "'1X' is not a size"),
        (["-b", "1M", "-e", "1K"], "--begin 1048576 is larger than --end 1024"),
        (["--plot", "picture.qqq"], "--plot picture.qqq: the name must end in one of .png, .pdf, .svg"),
        (["-f", "1"], "1.0 is not in the range x>1"),
        (["-n", "0"], "0 is not in the range x>=1"),
        (["--json", "no/such/folder.json"], "there is no folder no/such"),
        (["--dtype", "int8"], "'int8' is not one of"),
    ],
)
def test_mistakes_are_one_line_and_status_2(arguments, message):
    done = mpirun(2, ["nnabla-torus", "bench", *arguments])
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2 and len(told) == 1 and message in told[0], done.stderr
    assert "Traceback" not in done.stderr
