"""Draws a benchmark: time of an all-reduce by size, a line for each algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nnabla_torus.bench.all_reduce import Result


def plot(results: Sequence[Result], file: Path) -> None:
    """Write the picture in the format of the file's name; needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for algorithm in dict.fromkeys(result.algorithm for result in results):
        rows = [result for result in results if result.algorithm == algorithm]
        label = f"{algorithm} {rows[0].grid}"
        axes.plot([row.size for row in rows], [row.time_us for row in rows], marker="o", markersize=4, label=label)
    axes.set(xscale="log", yscale="log", xlabel="size (B)", ylabel="time (us), measured: median, slowest rank")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)
