"""`nnabla-torus bench`: all-reduce algorithms timed on the ranks that mpirun started."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nnabla_torus.failure import EXIT_BUG, UserError
from nnabla_torus.means import MESSAGES, SHARED_MEMORY, Means

if TYPE_CHECKING:
    from mpi4py import MPI

    from nnabla_torus.plan import Plan


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
@click.option(
    "--inside",
    type=click.Choice([SHARED_MEMORY, *MESSAGES]),
    default=SHARED_MEMORY,
    show_default=True,
    help="Means of groups inside a host.",
)
@click.option(
    "--between", type=click.Choice(MESSAGES), default="library", show_default=True, help="Means of groups across hosts."
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write results here too.")
@click.option("--plot", "plot_file", type=click.Path(dir_okay=False, path_type=Path), help="Draw time by size here.")
@click.option(
    "--tune",
    "table_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Time every means and keep the table here.",
)
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
    inside: str,
    between: str,
    json_file: Path | None,
    plot_file: Path | None,
    table_file: Path | None,
) -> int:
    """Time all-reduce algorithms on the ranks that mpirun started.

    Sizes take K, M and G (binary). Algorithms take turns in each iteration; a time is the slowest rank's, the median
    over iterations. algbw is size / time; busbw is algbw x 2(n-1)/n on n ranks, whatever the algorithm. Ends with
    status 1 when any element is wrong.
    """
    from mpi4py import MPI

    from nnabla_torus.all_reduce import AllReduce
    from nnabla_torus.bench import all_reduce as measure
    from nnabla_torus.bench import plot as measure_plot

    names = list(measure.NAMES) if algorithms is None else algorithms.split(",")
    if begin > end:
        raise UserError(f"--begin {begin} is larger than --end {end}; it must not be")
    for option, file in (("--json", json_file), ("--plot", plot_file), ("--tune", table_file)):
        if file and not file.parent.is_dir():
            raise UserError(f"{option} {file}: there is no folder {file.parent}; make it first")
    if plot_file:
        measure_plot.check(plot_file)
    comm = MPI.COMM_WORLD
    plans = measure.make_plans(comm, names, grid)
    sizes = measure.sizes(begin, end, factor)
    leads = comm.Get_rank() == 0
    if table_file:
        _tune(comm, plans, sizes, iterations, table_file)
        return 0
    means = Means(inside, between)
    runners = {name: AllReduce(plan, comm, means) for name, plan in plans.items()}
    surroundings = measure.environment(comm)
    if leads:
        print("\n".join(f"# {key}: {value}" for key, value in surroundings.items() if value is not None))
        print(f"# means: inside a host {inside}, between hosts {between}")
        for reason in {runner.why_not_shared for runner in runners.values()} - {""}:
            print(f"# memory cannot be shared, so the library stands in: {reason}")
        print("".join(f"# {name}: {plan.note}\n" for name, plan in plans.items() if plan.note), end="")
        print(measure.HEADER, flush=True)
    results = []
    for result in measure.run(comm, runners, sizes, dtype, iterations, warmup, bool(check)):
        results.append(result)
        if leads:
            print(measure.line(result), flush=True)
    if leads and json_file:
        json_file.write_text(measure.as_json(surroundings, results), encoding="utf-8")
    if leads and plot_file:
        measure_plot.plot(results, plot_file)
    wrong = sum(result.wrong or 0 for result in results)
    if wrong and leads:
        print(f"error: {wrong} elements are wrong", file=sys.stderr)
    return EXIT_BUG if wrong else 0


def _tune(comm: MPI.Comm, plans: Mapping[str, Plan], sizes: Sequence[int], iterations: int, file: Path) -> None:
    """Measure, and put this world into the table of a file that may hold others."""
    from nnabla_torus.bench.tune import tune
    from nnabla_torus.tuning import Table, read_table

    table = read_table(file) if file.exists() else Table()
    world = tune(comm, plans, sizes, iterations)
    if comm.Get_rank() == 0:
        file.write_text(table.with_world(world).model_dump_json(indent=1), encoding="utf-8")
        for size in sizes:
            best = min((row for row in world.rows if row.size == size), key=lambda row: row.time_us)
            print(f"{size:>12} B  {best.algorithm:>18} {best.inside:>14} {best.between:>8} {best.time_us:>11.1f} us")
        print(f"table: {file}")
