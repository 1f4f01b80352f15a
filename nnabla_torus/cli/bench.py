"""`nnabla-torus bench`: all-reduce algorithms timed on the ranks that mpirun started."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from nnabla_torus.failure import EXIT_BUG, UserError


class Size(click.ParamType):
    """A number of bytes, with K, M or G for binary multiples."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        match = re.fullmatch(r"(\d+)([KMG]?)", str(value), re.IGNORECASE)
        if not match:
            self.fail(f"{value!r} is not a size; write bytes as in 4096, 64K, 4M or 1G", param, ctx)
        return int(match[1]) * 1024 ** " KMG".index(match[2].upper() or " ")


@click.command()
@click.option("-b", "--begin", type=Size(), default="1K", show_default=True, help="Smallest size.")
@click.option("-e", "--end", type=Size(), default="16M", show_default=True, help="Largest size.")
@click.option("-f", "--factor", type=click.FloatRange(1, min_open=True), default=4, show_default=True, help="Step.")
@click.option("-n", "--iterations", type=click.IntRange(1), default=20, show_default=True, help="Timed iterations.")
@click.option("-w", "--warmup", type=click.IntRange(0), default=5, show_default=True, help="Iterations before them.")
@click.option("-c", "--check", type=click.IntRange(0, 1), default=1, show_default=True, help="Check results, 0 or 1.")
@click.option("--grid", default="auto", show_default=True, help="Grid of the ranks, farthest axis first, as in 2x3.")
@click.option("--algorithms", help="Names with commas between; all unless given.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "float64"]), default="float32", show_default=True)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write results here too.")
def bench(
    begin: int,
    end: int,
    factor: float,
    iterations: int,
    warmup: int,
    check: int,
    grid: str,
    algorithms: str | None,
    dtype: str,
    json_file: Path | None,
) -> int:
    """Time all-reduce algorithms on the ranks that mpirun started.

    Sizes take K, M and G (binary). Algorithms take turns in each iteration; a time is the slowest rank's, the median
    over iterations. algbw is size / time; busbw is algbw x 2(n-1)/n on n ranks, whatever the algorithm. Ends with
    status 1 when any element is wrong.
    """
    from mpi4py import MPI

    from nnabla_torus.bench import all_reduce as measure

    names = list(measure.NAMES) if algorithms is None else algorithms.split(",")
    if begin > end:
        raise UserError(f"--begin {begin} is larger than --end {end}; it must not be")
    if json_file and not json_file.parent.is_dir():
        raise UserError(f"--json {json_file}: there is no folder {json_file.parent}; make it first")
    comm = MPI.COMM_WORLD
    plans = measure.make_plans(comm, names, grid)
    surroundings = measure.environment(comm)
    leads = comm.Get_rank() == 0
    if leads:
        print("\n".join(f"# {key}: {value}" for key, value in surroundings.items() if value is not None))
        print("".join(f"# {name}: {plan.note}\n" for name, plan in plans.items() if plan.note), end="")
        print(measure.HEADER, flush=True)
    results = []
    for result in measure.run(comm, plans, measure.sizes(begin, end, factor), dtype, iterations, warmup, bool(check)):
        results.append(result)
        if leads:
            print(measure.line(result), flush=True)
    if leads and json_file:
        json_file.write_text(measure.as_json(surroundings, results), encoding="utf-8")
    wrong = sum(result.wrong or 0 for result in results)
    if wrong and leads:
        print(f"error: {wrong} elements are wrong", file=sys.stderr)
    return EXIT_BUG if wrong else 0
