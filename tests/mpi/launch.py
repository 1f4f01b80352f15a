"""Runs something under mpirun with a time limit, as root, with more ranks than cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
PROGRAMS = Path(__file__).parent / "programs"
OPTIONS = [
    "--map-by",
    ":OVERSUBSCRIBE",
    "--bind-to",
    "none",
    "--mca",
    "mpi_yield_when_idle",
    "1",
    "--mca",
    "osc",
    "^ucx",
]
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def mpirun(
    ranks: int,
    command: Sequence[str | os.PathLike[str]],
    timeout: float = 60,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` on `ranks` ranks; a .py file first means this Python, a bare name a command of its environment.

    The whole job is killed, and the test fails, when it takes longer than `timeout` seconds.
    """
    first, *rest = map(str, command)
    program = [sys.executable, first] if first.endswith(".py") else [str(BIN / first)]
    with subprocess.Popen(
        [str(BIN / "mpirun"), *OPTIONS, "-n", str(ranks), *program, *rest],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **ENVIRONMENT, **(environment or {})},
        cwd=cwd,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise AssertionError(f"{command} on {ranks} ranks took over {timeout} s\n{out}\n{err}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def check(ranks: int, program: str, *arguments: str, timeout: float = 120) -> str:
    """Run one of `programs/` and return what it printed; fail with its output unless it ends well."""
    done = mpirun(ranks, [PROGRAMS / program, *arguments], timeout)
    assert done.returncode == 0, f"{program} on {ranks} ranks: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
