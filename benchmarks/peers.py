"""Our all-reduce against every MPI that a user could install, and against gloo, in turns on the same number of ranks.

    python benchmarks/peers.py --install                             environments for the others, under build/peers
    python benchmarks/peers.py --ranks 2,4,8 --size 102228128        102 MB: ResNet-50's gradients in fp32
    python benchmarks/peers.py --ranks 64 --size 256K --grid 8x8

Each library runs in a job of its own whose ranks sleep until they are told to run, so that none disturbs another; in
every round each contestant sums once. A time is the slowest rank's; the table shows medians over rounds, and ratios to
ours. A contestant that cannot run says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "build" / "peers"
WORKER = HERE / "peer.py"
OWN = Path(sys.prefix)

# Environments of the others: name -> (Python, packages). gloo comes with torch, whose CPU build is for newer Pythons.
ENVIRONMENTS = {
    "mpich": ("python3.10", ["mpi4py", "mpich", "numpy<2"]),
    "intel": ("python3.10", ["mpi4py", "impi-rt", "numpy<2"]),
    "gloo": ("python3.11", ["torch", "numpy"]),
    "horovod": ("python3.11", ["torch", "horovod", "numpy"]),
}
PATIENCE_S = 40  # for one sum
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OPENMPI = [
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
TUNED = ["--mca", "coll", "^han,xhc", "--mca", "coll_tuned_use_dynamic_rules", "1", "--mca"]
ALGORITHMS = ["basic", "nonoverlapping", "recursive doubling", "ring", "segmented ring", "rabenseifner"]
FORCED = {
    f"openmpi {name}": [*TUNED, "coll_tuned_allreduce_algorithm", str(number)]
    for number, name in enumerate(ALGORITHMS, 1)
}


class Job:
    """The ranks of one library, each connected to us and asleep until told to run."""

    def __init__(self, name: str, command: list[str], ranks: int, environment: dict[str, str]) -> None:
        self.name, self.ranks = name, ranks
        with socket.create_server(("127.0.0.1", 0), backlog=ranks) as server:
            server.settimeout(0.2)
            address = f"127.0.0.1:{server.getsockname()[1]}"
            self.log = tempfile.NamedTemporaryFile("w+", prefix="peers-")  # noqa: SIM115
            self.process = subprocess.Popen(
                [*command, address],
                env={**os.environ, "OMP_NUM_THREADS": "1", **ROOT, **environment},
                stdout=self.log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.streams = []
            deadline = time.monotonic() + 30 + ranks
            while len(self.streams) < ranks:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    reason = self.why()
                    self.close()
                    raise RuntimeError(reason)
                with contextlib.suppress(TimeoutError, socket.timeout):
                    connection, _ = server.accept()
                    connection.settimeout(PATIENCE_S)
                    self.streams.append(connection.makefile("rw"))

    def run(self, contestant: str) -> float:
        """Let all ranks sum once and return the slowest's seconds."""
        for stream in self.streams:
            stream.write(contestant + "\n")
            stream.flush()
        try:
            answers = [stream.readline().strip() for stream in self.streams]
        except OSError:
            raise RuntimeError(f"{contestant} did not end within {PATIENCE_S} s") from None
        if not all(answers):
            raise RuntimeError(self.why())
        failed = [answer for answer in answers if not re.fullmatch(r"[\d.e+-]+", answer)]
        if failed:
            raise RuntimeError(failed[0])
        return max(map(float, answers))

    def why(self) -> str:
        """Return the last line that the job printed."""
        self.log.flush()
        lines = [line for line in Path(self.log.name).read_text(errors="replace").splitlines() if line.strip(" -\0")]
        errors = [line for line in lines if "error" in line.lower()] or lines
        return errors[-1].strip() if errors else "it ended without a word"

    def close(self) -> None:
        """End the job."""
        for stream in getattr(self, "streams", []):
            with contextlib.suppress(OSError):
                stream.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        self.log.close()


def install() -> None:
    """Make an environment for each of the others; what cannot be had is told and left out."""
    PEERS.mkdir(parents=True, exist_ok=True)
    for name, (python, packages) in ENVIRONMENTS.items():
        place = PEERS / name
        interpreter = find_python(python)
        if interpreter is None:
            print(f"{name}: no {python} found")
            continue
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([interpreter, "-m", "venv", place], check=True)
        done = subprocess.run(
            [place / "bin" / "pip", "install", "-q", *packages],
            capture_output=True,
            text=True,
            timeout=1200,
            check=False,
        )
        if done.returncode:
            shutil.rmtree(place)
            print(f"{name}: cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        else:
            print(f"{name}: ready")


def find_python(name: str) -> str | None:
    """Return an interpreter of that version that answers, pyenv's included."""
    version = name.removeprefix("python")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for candidate in (name, *map(str, pyenv.glob(f"{version}*/bin/python"))):
        with contextlib.suppress(OSError):
            if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
                return candidate
    return None


def command(name: str, ranks: int, size: int, grid: str) -> tuple[list[str], dict[str, str]]:
    """Return how a library's job is started, and its environment."""
    worker = [str(WORKER), name.split(maxsplit=1)[0], str(size), grid]
    if name == "ours" or name.startswith("openmpi"):
        mpirun = [str(OWN / "bin" / "mpirun"), *OPENMPI, *FORCED.get(name, []), "-n", str(ranks)]
        return [*mpirun, sys.executable, *worker], {}
    place = PEERS / name.split(maxsplit=1)[0]
    if not place.is_dir():
        raise RuntimeError("not installed; run with --install")
    python = str(place / "bin" / "python")
    if name in ("gloo", "horovod"):
        return [python, str(WORKER), "spawn", str(ranks), *worker[1:]], {}
    yields = {"I_MPI_THREAD_YIELD": "3"} if "yielding" in name else {}
    return [str(place / "bin" / "mpiexec"), "-n", str(ranks), python, *worker], yields


def contest(ranks: int, size: int, grid: str, rounds: int) -> dict[str, object]:
    """Run all contestants in turns on `ranks` ranks, and return medians, ratios and who could not run."""
    jobs: dict[str, Job] = {}
    absent: dict[str, str] = {}

    def start(name: str) -> Job | None:
        try:
            arguments, environment = command(name, ranks, size, grid)
            return Job(name, arguments, ranks, environment)
        except (RuntimeError, OSError) as reason:
            absent[name] = str(reason)
            return None

    # The best of Open MPI's own algorithms is found first, so that idle jobs do not fill the memory.
    forced: dict[str, float] = {}
    for name in FORCED:
        if job := start(name):
            with contextlib.suppress(RuntimeError):
                forced[name] = statistics.median([job.run("all_reduce") for _ in range(4)][1:])
            job.close()
    best = [min(forced, key=forced.__getitem__)] if forced else []
    for name in ["ours", "openmpi", *best, "mpich", "intel", "intel yielding", "gloo", "horovod"]:
        if job := start(name):
            jobs[name] = job
    turns = [("ours", jobs["ours"], "auto"), ("ours, torus", jobs["ours"], "torus"), ("copy", jobs["ours"], "copy")]
    turns += [("flat ring of messages", jobs["ours"], "ring")]
    turns += [(name, job, "all_reduce") for name, job in jobs.items() if name != "ours"]
    times: dict[str, list[float]] = {name: [] for name, _, _ in turns}
    for round_ in range(rounds + 1):
        for name, job, what in turns:
            if name in absent:
                continue
            try:
                took = job.run(what)
            except RuntimeError as reason:
                absent[name] = str(reason)
                continue
            if round_:  # the first round warms up
                times[name].append(took)
    for job in jobs.values():
        job.close()
    if not times["ours"] or not times["ours, torus"]:
        sys.exit(f"error: ours could not run: {absent}")
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    return {
        "ranks": ranks,
        "size": size,
        "grid": grid,
        "rounds": rounds,
        "median_us": {name: seconds * 1e6 for name, seconds in medians.items()},
        "ratio_to_ours": {name: seconds / medians["ours"] for name, seconds in medians.items()},
        "ratio_to_torus": {name: seconds / medians["ours, torus"] for name, seconds in medians.items()},
        "forced_open_mpi_us": {name: seconds * 1e6 for name, seconds in forced.items()},
        "absent": absent,
    }


def show(result: dict[str, object]) -> None:
    """Print one number of ranks as a table."""
    print(f"\n{result['ranks']} ranks, {result['size']} B, medians of {result['rounds']} rounds, measured")
    medians, ratios, torus = (result[key] for key in ("median_us", "ratio_to_ours", "ratio_to_torus"))
    for name, microseconds in sorted(medians.items(), key=lambda entry: entry[1]):
        print(f"  {name:28} {microseconds:12.0f} us   / ours {ratios[name]:6.2f}   / torus {torus[name]:6.2f}")
    for name, reason in result["absent"].items():
        print(f"  {name:28} cannot run: {reason[:120]}")


def plot(results: list[dict[str, object]], file: Path) -> None:
    """Draw the times as bars, a group for each number of ranks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for result in results for name in result["median_us"]))
    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for place, name in enumerate(names):
        heights = [result["median_us"].get(name, 0) / 1e3 for result in results]
        axes.bar([at + place * 0.8 / len(names) for at in range(len(results))], heights, 0.8 / len(names), label=name)
    axes.set_xticks([at + 0.4 for at in range(len(results))], [f"{result['ranks']} ranks" for result in results])
    axes.set(yscale="log", ylabel="time of an all-reduce (ms), measured: median, slowest rank")
    axes.legend(fontsize="small")
    figure.savefig(file, dpi=120)


def parse_size(text: str) -> int:
    """Return bytes; K, M and G are binary."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write bytes as in 4096, 64K or 1G")
    return int(match[1]) * 1024 ** " KMG".index(match[2] or " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="make the environments of the others, then end")
    parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks (%(default)s)")
    parser.add_argument("--size", type=parse_size, default="102228128", help="bytes of the buffer (%(default)s)")
    parser.add_argument("--grid", default="auto", help="the torus's grid (%(default)s)")
    parser.add_argument("--rounds", type=int, default=11, help="rounds (%(default)s)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if arguments.install:
        install()
        return
    results = []
    for ranks in map(int, arguments.ranks.split(",")):
        results.append(contest(ranks, arguments.size, arguments.grid, arguments.rounds))
        show(results[-1])
    if arguments.json:
        surroundings = {"cores": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
        arguments.json.write_text(json.dumps({"environment": surroundings, "results": results}, indent=1))
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
