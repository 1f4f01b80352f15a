"""A cluster of several hosts on one machine: any command over real MPI and real TCP, through links of a chosen rate.

mpirun runs on the first host and starts its daemons on the others as on a real cluster, with `enter_host.py` in the
place of ssh. Needs root, iproute2 and Open MPI 5; its limits are in docs/emulated_cluster.md.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnabla_torus.bench import enter_host
from nnabla_torus.bench.emulated_hosts import INTERFACE, Description, EmulatedHosts
from nnabla_torus.failure import UserError

# The environment variable that tells the command which cluster it runs on, as the JSON of a `Description`.
VARIABLE = "NNABLA_TORUS_EMULATED_CLUSTER"

# A command that was told to end gets this long; mpirun ends its ranks in half a second.
GRACE_S = 5.0

LAUNCH_OPTIONS = {
    "prte_if_include": INTERFACE,
    # Daemons start ranks from their main thread. From others (16 unless told) they miss the end of ranks that end at
    # once, and mpirun waits for ever (27 of 60 runs of `hostname` on 2 x 4 ranks with Open MPI 5.0.11).
    "odls_base_max_threads": "0",
    "prte_tmpdir_base": "/dev/shm",  # each host's own: nothing is left of a run that was killed
}
MPI_OPTIONS = {
    "pml": "ob1",
    "btl": "self,sm,tcp",
    "btl_tcp_if_include": INTERFACE,
    "osc": "^ucx",  # which else says an error of no consequence
    "mpi_yield_when_idle": "1",  # there are more ranks than cores
}


class EmulatedCluster:
    """A cluster for the time of a `with` block.

    `slots` is one number for every host or one per host; `rate` is that of each host's link, each way, as tc writes it
    ("100mbit"); `mtu` and `burst` are in B; `shm_size` is the size of each host's own /dev/shm as tmpfs takes it.
    Raises UserError for what cannot be made, on construction or, when it is this machine that cannot, on entering.
    """

    def __init__(
        self,
        hosts: int,
        slots: int | Sequence[int],
        rate: str,
        mtu: int = 1500,
        burst: int = 32768,
        shm_size: str = "50%",
    ) -> None:
        per_host = (slots,) * hosts if isinstance(slots, int) else tuple(slots)
        if len(per_host) != hosts:
            raise UserError(
                f"slots for {len(per_host)} hosts do not fit {hosts} hosts; give one number or one per host"
            )
        self.description = Description(per_host, rate, mtu, burst, shm_size)

    def __enter__(self) -> EmulatedCluster:
        self._hosts = EmulatedHosts(self.description)
        return self

    def __exit__(self, *_: object) -> None:
        self._hosts.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts, of this cluster alone."""
        return self._hosts.names

    def run(
        self,
        command: Sequence[str | os.PathLike[str]],
        ranks: int | None = None,
        *,
        map_by: str = "slot",
        mca: Sequence[tuple[str, str]] = (),
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        capture_output: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with mpirun on the hosts, on all slots unless `ranks` says how many, and return how it ended.

        `map_by` "slot" fills a host before the next, "node" deals ranks round-robin. `mca` holds pairs for Open MPI's
        --mca and replaces ours of the same name; `environment` adds to this process's own. After `timeout` seconds, as
        on any exception, the command is told to end and gets `GRACE_S`; if it does not, the cluster is closed. Raises
        subprocess.TimeoutExpired.
        """
        words = [
            # A signal is for mpirun: what stands between it and us must live until it has ended.
            *("env", "--ignore-signal=INT,TERM", *self._hosts.entering(0)),
            *("env", "--default-signal=INT,TERM", f"--chdir={Path.cwd()}"),
            *self._mpirun(ranks, map_by, mca),
            *(os.fspath(word) for word in command),
        ]
        pipe = subprocess.PIPE if capture_output else None
        with subprocess.Popen(
            words,
            stdout=pipe,
            stderr=pipe,
            text=True,
            env={**_environment(), **(environment or {}), VARIABLE: self.description.as_json()},
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                self._stop(process)
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def _mpirun(self, ranks: int | None, map_by: str, mca: Sequence[tuple[str, str]]) -> list[str]:
        slots = self.description.slots
        total = sum(slots)
        if ranks is not None and not 1 <= ranks <= total:
            raise UserError(f"{ranks} ranks do not fit the cluster's {total} slots; from 1 to {total} do")
        hosts = ",".join(f"{name}:{count}" for name, count in zip(self.names, slots))
        pids = ",".join(f"{name}={pid}" for name, pid in zip(self.names, self._hosts.pids))
        # Isolated and without site: it starts once per host.
        launch = {"plm_ssh_agent": f"{sys.executable} -I -S {enter_host.__file__} {pids}", **LAUNCH_OPTIONS}
        return [
            *(_mpirun_path(), "--host", hosts, "--map-by", map_by, "--bind-to", "none", "-n", str(ranks or total)),
            *(word for name, value in launch.items() for word in ("--prtemca", name, value)),
            *(word for name, value in {**MPI_OPTIONS, **dict(mca)}.items() for word in ("--mca", name, value)),
        ]

    def _stop(self, process: subprocess.Popen[str]) -> None:
        try:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGTERM)
                os.killpg(process.pid, signal.SIGCONT)  # if it was stopped, it must run to end
                process.wait(GRACE_S)
        finally:
            if process.poll() is None:  # it does not listen, or a second Ctrl-C came
                self._hosts.close()


def _mpirun_path() -> str:
    beside = Path(sys.executable).with_name("mpirun")
    found = str(beside) if beside.exists() else shutil.which("mpirun")
    if found is None:
        raise UserError("there is no mpirun; install Open MPI 5 with: pip install 'nnabla-torus[mpi]'")
    return found


def _environment() -> dict[str, str]:
    """Return the command's environment: this Python's commands come first, a rank computes with one thread."""
    return {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
