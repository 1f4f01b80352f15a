"""What watches a run, and what controls it. `trainer.Trainer` draws when each is called."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from nnabla_torus.schedules.batch_size import BatchSchedule

if TYPE_CHECKING:
    from nnabla_torus.training.trainer import Trainer


class Callback:
    """Watches; to be derived from. A callback with state of its own keeps it in checkpoints, under its `name`."""

    name = ""

    def before_training(self, trainer: Trainer) -> None:
        """Before the first step of this process."""

    def before_step(self, trainer: Trainer) -> None:
        """Before the samples of a step are read."""

    def after_step(self, trainer: Trainer) -> None:
        """After the update."""

    def after_training(self, trainer: Trainer) -> None:
        """After the last step."""

    def on_event(self, trainer: Trainer, event: str, fields: dict[str, Any]) -> None:
        """When somebody emits an event."""

    def state(self) -> dict[str, Any]:
        """Return what `restore` needs to go on, as JSON can hold it; the same on every rank."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state."""


class BatchSizeControl(Callback):
    """Controls: sets the batch size before every step, as a schedule says (Mikami et al. 2018, batch-size control)."""

    name = "batch_size_control"

    def __init__(self, schedule: BatchSchedule) -> None:
        self.schedule = schedule

    def before_step(self, trainer: Trainer) -> None:
        """Set the batch size of the step that begins."""
        trainer.batch_size = self.schedule(trainer.seen)


class Evaluate(Callback):
    """Evaluates on the test set every so many epochs, and at the end; belongs on every rank."""

    name = "evaluate"

    def __init__(self, every: float, batch: int) -> None:
        self.every = every
        self.batch = batch

    def after_step(self, trainer: Trainer) -> None:
        """Evaluate where it is time."""
        if trainer.passed(self.every):
            trainer.evaluate(self.batch)


class TellReplaced(Callback):
    """Tells, every so many epochs, which bad files were replaced since the last time, by how often, on all ranks.

    It counts what was decoded, which is a little ahead of what was trained on; belongs on every rank.
    """

    name = "replaced"

    def __init__(self, replaced: Counter[str], every: float) -> None:
        self._replaced = replaced
        self._every = every

    def after_step(self, trainer: Trainer) -> None:
        """Add up over ranks where it is time."""
        if trainer.passed(self._every):
            files = trainer.communicator.mpi.allreduce(self._replaced)
            self._replaced.clear()
            if files:
                trainer.emit("replaced", files=dict(sorted(files.items())))


class TellAlgorithms(Callback):
    """Tells once which all-reduce each gradient buffer takes, and whether it is what it was before a resume."""

    name = "algorithms"

    def __init__(self) -> None:
        self._told = False
        self._before: list[str] | None = None

    def after_step(self, trainer: Trainer) -> None:
        """Tell after the first step, which lays the buffers out."""
        if not self._told:
            self._told = True
            now = trainer.exchange.algorithms
            trainer.emit("exchange", algorithms=now, changed=self._before is not None and self._before != now)
            self._before = now

    def state(self) -> dict[str, Any]:
        """Return what was told."""
        return {"algorithms": self._before}

    def restore(self, state: dict[str, Any]) -> None:
        """Compare with what was told before."""
        self._before = state["algorithms"]
