import os
import signal
import subprocess
import sys
import time

import pytest

from tests.mpi.launch import BIN, ENVIRONMENT, OPTIONS, PROGRAMS, check


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_nnablas_buffers_are_shared_where_they_lie(ranks):
    check(ranks, "shared_memory.py", "shared")


@pytest.mark.parametrize("ranks", [2, 3])
def test_without_shared_memory_the_library_stands_in_on_all_ranks(ranks):
    """One rank alone cannot share; all must take the same way around it."""
    check(ranks, "shared_memory.py", "refused")


def test_what_is_offered_but_not_the_same_pages_is_refused():
    check(3, "shared_memory.py", "impostor")


@pytest.mark.parametrize("ending", ["success", "error", "kill"])
def test_nothing_is_left_behind(ending):
    before = sorted(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [BIN / "mpirun", *OPTIONS, "-n", "3", sys.executable, PROGRAMS / "shared_memory.py", "hold", ending],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as job:
        assert job.stdout is not None
        ranks = sorted(int(job.stdout.readline()) for _ in range(3))
        if ending == "kill":
            for pid in ranks:
                os.kill(pid, signal.SIGKILL)
        job.wait(timeout=30)
    assert (job.returncode == 0) == (ending == "success")
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in ranks) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in ranks)
    ours = [name for name in os.listdir("/dev/shm") if name not in before and "nnabla" in name]
    assert ours == []
