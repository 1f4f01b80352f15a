import re
import time

import pytest

from tests.mpi.launch import PROGRAMS, mpirun


def fail(ranks, *arguments):
    begin = time.monotonic()
    done = mpirun(ranks, [PROGRAMS / "failure.py", *arguments], timeout=30)
    return done, time.monotonic() - begin


@pytest.mark.parametrize("rank", [0, 2])
def test_one_rank_raising_ends_all_with_its_traceback(rank):
    done, took = fail(3, "bug", str(rank))
    assert done.returncode == 1
    assert took < 10  # the promise itself, not a measurement
    assert f"rank {rank} of 3 failed:\nTraceback" in done.stderr
    assert f"ZeroDivisionError: broken on rank {rank}" in done.stderr
    assert done.stderr.count("Traceback") == 1


def test_a_users_mistake_on_one_rank_is_one_line():
    done, _ = fail(3, "mistake", "1")
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("error")] == ["error: wrong on rank 1"]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("kind", "status"), [("mistake", 2), ("bug", 1)])
def test_what_all_ranks_find_is_told_once_by_the_first(kind, status):
    done, _ = fail(4, kind, "0", "1", "2", "3")
    assert done.returncode == status
    assert re.findall(r"(?:wrong|broken) on rank \d", done.stderr) in (["wrong on rank 0"], ["broken on rank 0"])


def test_a_good_end_is_a_good_end():
    done, _ = fail(3, "bug")
    assert (done.returncode, done.stderr) == (0, "")
