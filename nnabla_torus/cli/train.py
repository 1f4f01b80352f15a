"""`nnabla-torus train`: a network trained as a configuration says, on the ranks that mpirun started."""

from __future__ import annotations

from pathlib import Path

import click

from nnabla_torus.failure import launched_rank


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--resume", is_flag=True, help="Go on from the newest checkpoint in the run's folder, if there is one.")
def train(config: Path, overrides: tuple[str, ...], resume: bool) -> None:
    """Train as the YAML file CONFIG says, with single keys changed by KEY=VALUE, as in solver.momentum=0.95.

    The run's folder, runs/NAME unless CONFIG says otherwise, gets log.jsonl, checkpoints and plots.png. Without mpirun
    it is a run of one rank.

    Example: mpirun -n 4 nnabla-torus train configs/digits.yaml epochs=10
    """
    from nnabla_torus import run
    from nnabla_torus.config_file import load

    rank, ranks = launched_rank()
    wanted = load(config, overrides)
    run.check_fits(wanted, ranks)
    result = run.train(wanted, resume)
    if rank == 0:
        from nnabla_torus.report import plot_run

        folder = run.RunFolder(Path(wanted.output))
        drawn = plot_run(folder)
        print(f"test accuracy {result.top1:.2%} after {result.samples:,} images in {result.seconds:.1f} s")
        print(f"log {folder.log}")
        print(f"checkpoint {result.checkpoint}")
        print(f"plots {drawn}" if drawn else "no plots: install matplotlib, or nnabla-torus[report], for them")
