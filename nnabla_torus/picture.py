"""A plan drawn on its grid, in text.

Each rank is a cell: its number, and a bar that is the buffer. What the rank holds is marked by how much is summed in
it. The groups of a phase are joined: along the last axis by dashes, along the one before by bars.
"""

from __future__ import annotations

from nnabla_torus.plan import Phase, Plan
from nnabla_torus.reference import Holding, check, holdings

LARGEST = 36  # ranks; of a larger grid only what rank 0 holds is told
WIDEST = 24  # characters of a bar

NOTHING, PART, WHOLE = ".", "+", "#"
LEGEND = f"{NOTHING} not held   {PART} summed over some ranks   {WHOLE} summed over all ranks"


def draw(plan: Plan) -> str:
    """Return the picture of a plan: what every rank holds at first and after each phase, and what it costs a rank.

    Raises PlanError for a plan that is wrong.
    """
    size = plan.grid.size
    count = size * len(plan.lanes)
    traffic = check(plan, count)
    steps, sent = max(rank.steps for rank in traffic), max(rank.elements for rank in traffic) / count
    lines = [f"{plan.name} on {plan.grid}: {steps} steps, each rank sends up to {sent:.3g} x the buffer"]
    if plan.note:
        lines.append(plan.note)
    for lane, phase, held in holdings(plan, count):
        lanes = f"lane {lane + 1}: " if len(plan.lanes) > 1 else ""
        if size <= LARGEST:
            lines += ["", f"{lanes}{_title(phase)}", *_cells(plan, phase, held, count, min(count, WIDEST))]
        elif held[0] is not None:
            summed = bin(held[0].summed).count("1")
            lines.append(
                f"{lanes}{_title(phase)}: rank 0 has {held[0].length / count:.3g} of it, summed over {summed} ranks"
            )
    return "\n".join([*lines, "", LEGEND] if size <= LARGEST else lines)


def _title(phase: Phase | None) -> str:
    if phase is None:
        return "at first every rank holds its own gradients"
    leaders = ", leaders only" if phase.leaders else ""
    return f"{phase.op.value.replace('_', '-')} along axis {phase.axis}{leaders}"


def _cells(plan: Plan, phase: Phase | None, held: list[Holding | None], count: int, width: int) -> list[str]:
    grid = plan.grid
    columns = grid.shape[-1]
    digits = len(str(grid.size - 1))
    gap = 5
    lines: list[str] = []
    for first in range(0, grid.size, columns):
        cells = []
        for rank in range(first, first + columns):
            joined = phase is not None and phase.axis == len(grid.shape) - 1 and rank + 1 < first + columns
            joint = ("-" if joined and phase and _both(plan, phase, rank, rank + 1) else " ") * (gap - 2)
            cells.append(f"{rank:>{digits}} {_bar(held[rank], plan, count, width)} {joint} ")
        lines.append(("    " + "".join(cells)).rstrip())
        below = first + columns
        if below < grid.size and phase is not None and phase.axis == len(grid.shape) - 2:
            same_plane = below % (columns * grid.shape[-2])
            marks = [
                "|" if same_plane and _both(plan, phase, rank, rank + columns) else " " for rank in range(first, below)
            ]
            lines.append(("    " + "".join(f"{mark:<{digits + width + gap + 1}}" for mark in marks)).rstrip())
    return lines


def _both(plan: Plan, phase: Phase, one: int, other: int) -> bool:
    return phase.takes_part(plan.grid.coordinates(one)) and phase.takes_part(plan.grid.coordinates(other))


def _bar(holding: Holding | None, plan: Plan, count: int, width: int) -> str:
    if holding is None:
        return NOTHING * width
    mark = WHOLE if holding.summed == (1 << plan.grid.size) - 1 else PART
    start, stop = holding.start * width // count, -(-holding.stop * width // count)
    return NOTHING * start + mark * (stop - start) + NOTHING * (width - stop)
