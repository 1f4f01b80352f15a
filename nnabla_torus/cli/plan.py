"""`nnabla-torus plan`: an all-reduce drawn on its grid."""

from __future__ import annotations

import click

from nnabla_torus.failure import UserError


@click.command()
@click.argument("algorithm")
@click.argument("grid")
def plan(algorithm: str, grid: str) -> None:
    """Draw ALGORITHM on GRID (such as 2x3, farthest axis first): who holds which part of the sum after each phase."""
    from nnabla_torus.grid import Grid
    from nnabla_torus.picture import draw
    from nnabla_torus.plan import make_plan

    lengths = grid.split("x")
    if not all(length.isdecimal() and int(length) for length in lengths):
        raise UserError(f"grid {grid!r} is not a grid; write lengths as in 2x3, farthest axis first")
    click.echo(draw(make_plan(algorithm, Grid(tuple(map(int, lengths))))))
