"""What people see of a run: log.jsonl, and a progress bar on a terminal or plain lines elsewhere. For rank 0 alone."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from nnabla_torus.failure import UserError, launched_rank
from nnabla_torus.training.callbacks import Callback

if TYPE_CHECKING:
    from nnabla_torus.training.trainer import Trainer


class JsonLog(Callback):
    """Appends every event to a file as it happens, a JSON object a line; raises UserError when it cannot."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}; give another folder as output=...") from None

    def on_event(self, trainer: Trainer, event: str, fields: dict[str, Any]) -> None:
        """Write the event, with the time of day in seconds; JSON has no word for nan and infinity but null."""
        finite = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in fields.items()
        }
        self._file.write(json.dumps({"event": event, "time": round(time.time(), 3), **finite}) + "\n")


class Progress(Callback):
    """Shows how far the run is: samples, loss, accuracy, batch and rate."""

    def __init__(self) -> None:
        self._columns = terminal_columns()
        self._bar: tqdm[Any] | None = None
        self._epochs = 0
        self._last = (0.0, 0)  # time and samples at the last plain line

    def before_training(self, trainer: Trainer) -> None:
        """Begin the bar."""
        self._epochs = trainer.total // trainer.samples_per_epoch
        self._last = (time.perf_counter(), trainer.seen)
        if self._columns:
            self._bar = tqdm(
                total=trainer.total,
                initial=trainer.seen,
                unit=" images",
                unit_scale=True,
                ncols=self._columns,
                mininterval=0.5,
            )

    def on_event(self, trainer: Trainer, event: str, fields: dict[str, Any]) -> None:
        """Move the bar, or write a line."""
        if event == "step" and self._bar is not None:
            self._bar.set_postfix(self._postfix(trainer, fields), refresh=False)
            self._bar.update(trainer.taken)
        elif event == "batch_size":
            self.say(f"batch size {fields['batch_size']} from epoch {fields['epoch']:.2f} on")
        elif event == "exchange" and fields["changed"]:
            self.say(f"gradients now travel by {fields['algorithms']}: equal to the run before up to rounding only")
        elif event == "evaluation":
            self.say(self._line(trainer, fields))
        elif event == "replaced":
            times = sum(fields["files"].values())
            self.say(
                f"{len(fields['files'])} files cannot be decoded and were replaced {times} times; the log names them"
            )

    def after_training(self, trainer: Trainer) -> None:
        """End the bar."""
        if self._bar is not None:
            self._bar.close()

    def say(self, line: str) -> None:
        """Write a line without breaking the bar."""
        tqdm.write(line)
        sys.stdout.flush()

    @staticmethod
    def _postfix(trainer: Trainer, fields: dict[str, Any]) -> dict[str, str]:
        shown = {"loss": f"{fields['loss']:.3f}", "batch": str(fields["batch_size"])}
        if trainer.evaluation is not None:
            shown["test"] = f"{trainer.evaluation.top1:.1%}"
        return {**shown, "rate": f"{fields['learning_rate']:.4f}"}

    def _line(self, trainer: Trainer, fields: dict[str, Any]) -> str:
        now = (time.perf_counter(), trainer.seen)
        rate = (now[1] - self._last[1]) / max(now[0] - self._last[0], 1e-9)
        self._last = now
        loss = f"loss {trainer.loss:.4f}  " if trainer.taken else ""  # none yet where a finished run was resumed
        return (
            f"epoch {trainer.epoch:5.2f} of {self._epochs}  {loss}"
            f"test accuracy {fields['top1']:7.2%}  batch {trainer.batch_size}  {rate:,.0f} images/s"
        )


def terminal_columns() -> int | None:
    """Return the width of the terminal on which this process, or the mpirun that started it, reports; None without.

    mpirun gives its processes pipes and forwards what they write, so its own standard error is looked at.
    """
    launched = launched_rank()[1] > 1
    for path in ("/proc/self/fd/2", *([f"/proc/{os.getppid()}/fd/2"] if launched else [])):
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
            try:
                if os.isatty(file):
                    return os.get_terminal_size(file).columns or 80
            finally:
                os.close(file)
    return None
