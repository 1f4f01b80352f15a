"""`nnabla-torus export`: a trained network as one file that nnabla's other tools read."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from nnabla_torus.failure import UserError


@click.command()
@click.argument("run", type=click.Path(file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
def export(run: Path, out: Path) -> None:
    """Write the network of RUN, a run's folder or one of its checkpoints, as the NNP file OUT.

    The graph is that of evaluation, batch statistics combined over ranks; input `images`, normalised as for training,
    output `logits`.

    Example: nnabla-torus export runs/digits digits.nnp
    """
    from nnabla_torus.config import check
    from nnabla_torus.run import RunFolder, make_network
    from nnabla_torus.training import checkpoint

    if out.suffix != ".nnp":
        raise UserError(f"{out} does not end in .nnp, which tells nnabla what to write; name a file that does")
    if not out.parent.is_dir():
        raise UserError(f"{out}: there is no folder {out.parent}; make it first")
    path = run if (run / checkpoint.STATE).exists() else checkpoint.latest(RunFolder(run).checkpoints)
    if path is None:
        raise UserError(f"{run} holds no checkpoint; name a run's folder, or one of its checkpoints")
    found = checkpoint.read(path)
    logging.getLogger("nnabla").setLevel(logging.WARNING)  # before nnabla is imported, since it greets
    from nnabla_torus.models.nnp import save_nnp

    network = make_network(check(found.state["config"]), found.state["classes"])
    save_nnp(out, network, tuple(found.state["image_shape"]), found.parameters)
    click.echo(f"{path} -> {out}")
