"""From a trainer to a checkpoint and back, on all ranks together: rank 0 alone has the files.

Taken up on as many ranks as before, a run goes on bit by bit as if it had never stopped: every rank gets back its own
batch statistics. On another number of ranks all get the combined ones, and the run goes on as it would up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nnabla as nn
import numpy as np

from nnabla_torus.failure import UserError
from nnabla_torus.training.checkpoint import Checkpoint
from nnabla_torus.training.trainer import Trainer

STATISTICS = "statistics"


def take(trainer: Trainer, about: Mapping[str, Any]) -> Checkpoint | None:
    """Return a checkpoint of where the run stands on rank 0, None on the others; every rank must call this.

    `about` is added to its state. Its arrays are copies, so training may go on while it is written.
    """
    rows = trainer.statistics.gathered()
    combined = trainer.statistics.combined()
    if rows is None:
        return None
    graphs = trainer.graphs
    parameters = {name: parameter.d.copy() for name, parameter in graphs.parameters.items()}
    parameters.update(trainer.statistics.by_name(combined))
    state = {
        "step": trainer.step,
        "seen": trainer.seen,
        "seconds": trainer.elapsed,
        "seed": trainer.seed,
        "samples_per_epoch": trainer.samples_per_epoch,
        "batch_size": trainer.batch_size,
        "solver": trainer.solver.name,
        "ranks": trainer.communicator.size,
        "grid": list(trainer.communicator.grid.shape),
        "callbacks": {callback.name: callback.state() for callback in trainer.callbacks if callback.state()},
        **about,
    }
    return Checkpoint(state, parameters, frozenset(graphs.trainable), trainer.solver.state(), {STATISTICS: rows})


def restore(trainer: Trainer, checkpoint: Checkpoint | None, where: str) -> None:
    """Have the trainer stand where the checkpoint was taken; every rank must call this, rank 0 with the checkpoint.

    Raises UserError, before anything is changed, for a checkpoint of another model, another data set, another order of
    samples, or another solver; `where` says which checkpoint it is.
    """
    comm = trainer.communicator.mpi
    if checkpoint is not None:
        _check(trainer, checkpoint, where)
    state = comm.bcast(None if checkpoint is None else dict(checkpoint.state))
    remembered = {name: (array.shape, array.dtype) for name, array in trainer.solver.state().items()}
    for name, parameter in trainer.graphs.parameters.items():
        parameter.d = _shared(comm, None if checkpoint is None else checkpoint.parameters[name], parameter.shape)
    trainer.solver.restore(
        {
            name: _shared(comm, None if checkpoint is None else checkpoint.solver[name], shape, dtype)
            for name, (shape, dtype) in remembered.items()
        }
    )
    if state["ranks"] == trainer.communicator.size:
        trainer.statistics.scatter(None if checkpoint is None else checkpoint.ranks[STATISTICS])
    trainer.stand(state["step"], state["seen"], state["batch_size"], state["seconds"])
    for callback in trainer.callbacks:
        if callback.name in state["callbacks"]:
            callback.restore(state["callbacks"][callback.name])


def _shared(comm: Any, array: np.ndarray | None, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Return rank 0's array on every rank."""
    buffer = np.empty(shape, dtype) if array is None else np.ascontiguousarray(array, dtype)
    comm.Bcast(buffer)
    return buffer


def _check(trainer: Trainer, checkpoint: Checkpoint, where: str) -> None:
    """Raise UserError unless the checkpoint is one of this trainer's."""
    ours = {name: _signature(parameter) for name, parameter in trainer.graphs.parameters.items()}
    theirs = {name: (array.shape, name in checkpoint.trainable) for name, array in checkpoint.parameters.items()}
    if ours != theirs:
        name = min(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        raise UserError(
            f"checkpoint {where} is of another model: its {name} is {_described(theirs.get(name))}, here it is "
            f"{_described(ours.get(name))}; use the model it was made with, or another output"
        )
    for key, own in (
        ("solver", trainer.solver.name),
        ("seed", trainer.seed),  # which fixes the order of samples
        ("samples_per_epoch", trainer.samples_per_epoch),
    ):
        if checkpoint.state[key] != own:
            raise UserError(
                f"checkpoint {where} has {key} {checkpoint.state[key]}, here it is {own}; use what it was made with, "
                "or another output"
            )
    if checkpoint.state["seen"] > trainer.total:
        raise UserError(
            f"checkpoint {where} has seen {checkpoint.state['seen']} samples, more than the {trainer.total} of this "
            "run; give at least as many epochs as it had"
        )


def _signature(parameter: nn.Variable) -> tuple[tuple[int, ...], bool]:
    return tuple(parameter.shape), bool(parameter.need_grad)


def _described(signature: tuple[tuple[int, ...], bool] | None) -> str:
    if signature is None:
        return "not there"
    shape, trainable = signature
    return f"{'x'.join(map(str, shape))}{'' if trainable else ' (not trained)'}"
