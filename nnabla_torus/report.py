"""Plots of a finished run, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nnabla_torus.run_folder import RunFolder, read_log

# Panel, the event that it is drawn from, the key there, and how its axis is scaled.
PANELS = (
    ("training loss", "step", "loss", "log"),
    ("test accuracy", "evaluation", "top1", "linear"),
    ("global batch", "step", "batch_size", "linear"),
    ("learning rate", "step", "learning_rate", "linear"),
)


def plot_run(folder: RunFolder) -> Path | None:
    """Draw loss, accuracy, batch and rate over epochs as a PNG into a run's folder; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    events = read_log(folder.log)
    figure = Figure(figsize=(8, 9), layout="constrained")
    panels = figure.subplots(len(PANELS), sharex=True)
    for panel, (title, event, key, scale) in zip(panels, PANELS):
        points = [(found["epoch"], found[key]) for found in events if found["event"] == event]
        _draw(panel, points, title, scale)
    panels[-1].set_xlabel("epoch")
    figure.savefig(folder.plots, dpi=120)
    return folder.plots


def _draw(panel: Any, points: list[tuple[float, float]], title: str, scale: str) -> None:
    panel.plot(*zip(*points), marker="." if len(points) < 100 else "", linewidth=1)
    panel.set_ylabel(title)
    panel.set_yscale(scale)
    panel.grid(alpha=0.3)
