"""One run, put together from its configuration, on the ranks that mpirun started."""

from __future__ import annotations

import importlib.util
import logging
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnabla_torus.config import (
    AlexNetModel,
    Config,
    DigitsData,
    ImageNetData,
    ImageNetResNetModel,
    LarsSolver,
    NesterovSolver,
    ResNetModel,
)
from nnabla_torus.course import make_course
from nnabla_torus.data.source import DataSource
from nnabla_torus.failure import UserError
from nnabla_torus.grid import parse_grid
from nnabla_torus.plan import make_plan
from nnabla_torus.run_folder import RunFolder
from nnabla_torus.tuning import CHOOSING, read_table

if TYPE_CHECKING:
    import nnabla as nn

    from nnabla_torus.communicators.mpi import MpiCommunicator
    from nnabla_torus.data.index import Index
    from nnabla_torus.training.checkpoint import Checkpoint
    from nnabla_torus.training.graphs import Network
    from nnabla_torus.training.saving import Saving
    from nnabla_torus.training.solver import Recipe
    from nnabla_torus.training.trainer import Trainer


@dataclass(frozen=True)
class Result:
    """How a run ended; `checkpoint` is known to rank 0 alone."""

    top1: float
    samples: int
    seconds: float
    checkpoint: Path | None


def check_fits(run: Config, ranks: int) -> None:
    """Raise UserError for what does not fit the number of ranks or this machine; needs no rank to have started."""
    grid = parse_grid(run.grid, ranks)
    make_course(run, 1, ranks)
    if importlib.util.find_spec("nnabla") is None:
        here = platform.python_version()
        raise UserError(f"training needs nnabla, which has wheels for Python 3.9 and 3.10 only, and this is {here}")
    if run.device == "cuda" and importlib.util.find_spec("nnabla_ext.cuda") is None:
        raise UserError("device cuda needs nnabla-ext-cuda120, which is not installed; install it, or use device=cpu")
    if run.tuning is not None:
        read_table(Path(run.tuning))
    if run.algorithm not in CHOOSING:
        make_plan(run.algorithm, grid)


def make_source(run: Config, communicator: MpiCommunicator | None = None) -> DataSource:
    """Return the data set that a configuration describes; with a communicator every rank must call this.

    Rank 0 indexes image files where that was not done yet, and the others then read its index.
    """
    data = run.data
    if isinstance(data, DigitsData):
        from nnabla_torus.data.digits import Digits

        return Digits()
    from nnabla_torus.data.dali import Decoding
    from nnabla_torus.data.imagenet import ImageNet

    leads = communicator is None or communicator.rank == 0
    if communicator is not None and not leads:
        communicator.mpi.Barrier()
    train, val = _open_indexes(data, build=leads)
    if communicator is not None and leads:
        communicator.mpi.Barrier()
    decoding = Decoding(
        size=data.size,
        test_resize=data.test_resize,
        mean=data.mean,
        deviation=data.deviation,
        layout="NCHW" if isinstance(run.model, ResNetModel) else run.model.layout,
        threads=data.threads,
        piece=data.piece,
        prefetch=data.prefetch,
        gpu=communicator.local_rank if communicator is not None and run.device == "cuda" else None,
        on_error=data.on_error,
    )
    return ImageNet(train, val, data.augmentation, decoding)


def _open_indexes(data: ImageNetData, build: bool) -> tuple[Index, Index]:
    from nnabla_torus.data.scan import open_index

    root, cache = Path(data.root), Path(data.index) if data.index else None
    labels = Path(data.val_labels) if data.val_labels else None
    train = open_index(root, data.train, cache=cache, build=build)
    return train, open_index(root, data.val, labels, train.classes, cache, build)


def train(run: Config, resume: bool = False) -> Result:
    """Train as a configuration says; every rank must call this, and rank 0 alone prints and writes.

    With `resume` it goes on from the newest checkpoint in the run's folder, or starts afresh where there is none.
    """
    context = _context(run.device)
    from nnabla_torus.communicators import create_communicator

    communicator = create_communicator(context, run.algorithm, run.grid, tuning=run.tuning)
    leads = communicator.rank == 0
    folder = RunFolder(Path(run.output))
    checkpoint = _newest(folder) if leads and resume else None
    import nnabla as nn

    with nn.context_scope(context):
        trainer, saving = _assemble(run, communicator, folder)
        if communicator.mpi.bcast(checkpoint is not None):
            _go_on(trainer, saving, checkpoint)
        if leads:
            _prepare(trainer, folder, run, checkpoint, resume)
        trainer.emit("start", **_about(run, trainer, checkpoint))
        trainer.train()
        if trainer.evaluation is None:  # resumed where there was nothing left to do
            trainer.evaluate(run.evaluation.batch_per_rank)
    trainer.source.close()
    assert trainer.evaluation is not None
    result = Result(trainer.evaluation.top1, trainer.seen, trainer.elapsed, saving.newest)
    trainer.emit("end", top1=result.top1, samples=result.samples, seconds=result.seconds)
    return result


def _context(device: str) -> nn.Context:
    logging.getLogger("nnabla").setLevel(logging.WARNING)  # before nnabla is imported, since it greets
    from nnabla.ext_utils import get_extension_context

    return get_extension_context("cudnn" if device == "cuda" else "cpu")


def _assemble(run: Config, communicator: MpiCommunicator, folder: RunFolder) -> tuple[Trainer, Saving]:
    """Return the trainer that a configuration describes, and what saves it."""
    from nnabla_torus.data.imagenet import ImageNet
    from nnabla_torus.training.callbacks import BatchSizeControl, Evaluate, TellAlgorithms, TellReplaced
    from nnabla_torus.training.saving import Saving
    from nnabla_torus.training.trainer import Trainer

    source = make_source(run, communicator)
    course = make_course(run, source.train_samples, communicator.size)
    about = {
        "config": run.model_dump(mode="json"),
        "image_shape": list(source.image_shape),
        "classes": source.classes,
    }
    saving = Saving(folder.checkpoints, run.checkpoint.every, run.checkpoint.keep, about)
    trainer = Trainer(
        communicator=communicator,
        source=source,
        network=make_network(run, source.classes),
        recipe=_recipe(run),
        learning_rate=course.learning_rate,
        momentum=course.momentum,
        epochs=run.epochs,
        seed=run.seed,
        callbacks=[
            BatchSizeControl(course.batch_size),
            TellAlgorithms(),
            Evaluate(run.evaluation.every, run.evaluation.batch_per_rank),
            saving,
        ],
    )
    if isinstance(source, ImageNet):
        trainer.callbacks.append(TellReplaced(source.replaced, run.evaluation.every))
    return trainer, saving


def make_network(run: Config, classes: int) -> Network:
    """Return the network that a configuration describes."""
    from nnabla_torus.models.alexnet import AlexNet
    from nnabla_torus.models.imagenet_resnet import ImageNetResNet
    from nnabla_torus.models.resnet import ResNet

    model = run.model
    if isinstance(model, ImageNetResNetModel):
        return ImageNetResNet(classes, model.depth, model.version, model.last_gamma_zero, model.layout, run.seed)
    if isinstance(model, AlexNetModel):
        return AlexNet(classes, model.layout, run.seed)
    return ResNet(classes, model.blocks, model.widths, model.batch_normalization, run.seed)


def _recipe(run: Config) -> Recipe:
    from nnabla_torus.training import solver

    wanted = run.solver
    if isinstance(wanted, LarsSolver):
        return solver.lars(wanted.weight_decay, wanted.coefficient, wanted.eps)
    if isinstance(wanted, NesterovSolver):
        return solver.nesterov_sgd(wanted.weight_decay)
    return solver.momentum_sgd(wanted.weight_decay)


def _newest(folder: RunFolder) -> tuple[Path, Checkpoint] | None:
    from nnabla_torus.training import checkpoint

    path = checkpoint.latest(folder.checkpoints)
    return None if path is None else (path, checkpoint.read(path))


def _go_on(trainer: Trainer, saving: Saving, found: tuple[Path, Checkpoint] | None) -> None:
    """Have the trainer stand at the checkpoint that rank 0 found."""
    from nnabla_torus.training.resuming import restore

    path, checkpoint = found or (None, None)
    restore(trainer, checkpoint, str(path))
    saving.newest = path


def _prepare(
    trainer: Trainer, folder: RunFolder, run: Config, found: tuple[Path, Checkpoint] | None, resume: bool
) -> None:
    """Make the folder, say what begins, and have the run watched."""
    from nnabla_torus.training.watchers import JsonLog, Progress

    folder.make()
    communicator = trainer.communicator
    ranks = f"{communicator.size} ranks" if communicator.size > 1 else "1 rank (mpirun -n N would start more)"
    parameters = sum(parameter.size for parameter in trainer.graphs.trainable.values())
    print(
        f"{ranks} on a grid of {communicator.grid}, {run.algorithm}; {parameters:,} parameters; "
        f"{run.epochs} epochs of {trainer.samples_per_epoch:,} images",
        flush=True,
    )
    if found is not None:
        path, checkpoint = found
        print(f"going on from {path}, step {trainer.step}, epoch {trainer.epoch:.2f}")
        changed = _changed(checkpoint.state["config"], run.model_dump(mode="json"))
        if changed:
            print(f"changed since then: {', '.join(changed)}")
    else:
        if resume:
            print(f"no checkpoint in {folder.checkpoints}: starting afresh")
        earlier = folder.set_aside()
        if earlier:
            print(f"{folder.path} held an earlier run: kept in {earlier}")
    trainer.callbacks += [JsonLog(folder.log), Progress()]


def _changed(before: dict[str, Any], now: dict[str, Any], path: str = "") -> list[str]:
    """Return "key old -> new" for what differs between two configurations."""
    changed = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            changed += _changed(old, new, f"{path}{key}.")
        elif old != new:
            changed.append(f"{path}{key} {old} -> {new}")
    return changed


def _about(run: Config, trainer: Trainer, found: tuple[Path, Checkpoint] | None) -> dict[str, Any]:
    """Return what the log says at the start."""
    from mpi4py import MPI

    return {
        "config": run.model_dump(mode="json"),
        "ranks": trainer.communicator.size,
        "grid": list(trainer.communicator.grid.shape),
        "algorithm": run.algorithm,
        "samples_per_epoch": trainer.samples_per_epoch,
        "parameters": sum(parameter.size for parameter in trainer.graphs.trainable.values()),
        "resumed_from": None if found is None else str(found[0]),
        "versions": {
            **{name: version(name) for name in ("nnabla-torus", "nnabla", "numpy", "mpi4py")},
            "python": platform.python_version(),
            "mpi": MPI.Get_library_version().split(",")[0],
        },
    }
