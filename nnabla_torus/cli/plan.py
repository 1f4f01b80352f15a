"""`nnabla-torus plan`: an all-reduce drawn on its grid."""

from __future__ import annotations

import click

from nnabla_torus.failure import UserError

LARGEST = 65536  # ranks; more would take minutes


@click.command()
@click.argument("algorithm")
@click.argument("grid")
def plan(algorithm: str, grid: str) -> None:
    """Draw ALGORITHM on GRID (such as 2x3, farthest axis first): who holds which part of the sum after each phase."""
    from nnabla_torus.grid import written_grid
    from nnabla_torus.picture import draw
    from nnabla_torus.plan import make_plan

    wanted = written_grid(grid)
    if wanted.size > LARGEST:
        raise UserError(f"grid {grid} has {wanted.size} ranks; up to {LARGEST} can be followed")
    click.echo(draw(make_plan(algorithm, wanted)))
