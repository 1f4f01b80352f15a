"""Saves a run while it goes on: what is saved is copied between two steps, and written by a thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnabla_torus.failure import UserError
from nnabla_torus.training import checkpoint as checkpoints
from nnabla_torus.training.callbacks import Callback
from nnabla_torus.training.checkpoint import Checkpoint
from nnabla_torus.training.resuming import take

if TYPE_CHECKING:
    from nnabla_torus.training.trainer import Trainer


# While a checkpoint is written: how long the main thread waits until the writing one hands Python over, 5 ms otherwise.
SWITCH_INTERVAL_S = 1e-4


class Saving(Callback):
    """Saves every so many epochs, and at the end; belongs on every rank, since all take part. Rank 0 writes.

    The event `checkpoint` comes when the files are on the disk, a step or more after the one that they hold.
    """

    name = "saving"

    def __init__(self, folder: Path, every: float, keep: int, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self.every = every
        self.keep = keep
        self.about = about
        self.newest: Path | None = None
        self._writing: _Writing | None = None

    def after_step(self, trainer: Trainer) -> None:
        """Save where it is time, and tell of what has been written."""
        if self._writing is not None and self._writing.done():
            self._finish(trainer)
        if trainer.passed(self.every):
            checkpoint = take(trainer, self.about)
            if checkpoint is not None:
                self._finish(trainer)  # one at a time: a disk that is too slow slows training
                self._writing = _Writing(self.folder, checkpoint, self.keep)

    def after_training(self, trainer: Trainer) -> None:
        """Wait for what is still being written."""
        self._finish(trainer)

    def _finish(self, trainer: Trainer) -> None:
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        self.newest = writing.result()
        state = writing.checkpoint.state
        trainer.emit("checkpoint", path=str(self.newest), of_step=state["step"], of_seen=state["seen"])


class _Writing:
    """A thread that writes one checkpoint."""

    def __init__(self, folder: Path, checkpoint: Checkpoint, keep: int) -> None:
        self.checkpoint = checkpoint
        self._folder = folder
        self._keep = keep
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._write, name="checkpoint", daemon=True)
        self._thread.start()

    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self) -> Path:
        """Wait, and return where it was written, or raise what stopped it."""
        self._thread.join()
        if isinstance(self._error, OSError):
            raise UserError(f"cannot write a checkpoint into {self._folder}: {self._error.strerror}")
        if self._error is not None:
            raise self._error
        assert self._path is not None
        return self._path

    def _write(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        try:
            self._path = checkpoints.write(self._folder, f"step-{self.checkpoint.state['step']:08}", self.checkpoint)
            checkpoints.remove_old(self._folder, self._keep)
        except BaseException as error:  # raised again by `result`, in the main thread
            self._error = error
        finally:
            sys.setswitchinterval(interval)
