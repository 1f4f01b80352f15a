"""Draws a benchmark: time of an all-reduce by size, a line for each algorithm."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from nnabla_torus.bench.all_reduce import Result
from nnabla_torus.failure import UserError

FORMATS = (".png", ".pdf", ".svg")


def check(file: Path) -> None:
    """Raise UserError, before anything is measured, for a format that cannot be drawn or without matplotlib."""
    if file.suffix not in FORMATS:
        raise UserError(f"--plot {file}: the name must end in one of {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError(f"--plot {file} needs matplotlib; install it, or nnabla-torus[report]")


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
