"""The folder of a run: its log, its checkpoints, its plots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nnabla_torus.failure import UserError


class RunFolder:
    """Where a run leaves what it leaves."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "log.jsonl"
        self.checkpoints = path / "checkpoints"
        self.plots = path / "plots.png"

    def make(self) -> None:
        """Make the folder; raises UserError when that cannot be done."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot make the folder {self.path}: {error.strerror}; give another output=...") from None

    def set_aside(self) -> Path | None:
        """Move what an earlier run left here into a folder beside it, and return that; None when there is nothing."""
        left = [path for path in (self.log, self.checkpoints, self.plots) if path.exists()]
        if not left:
            return None
        number = 1
        while (earlier := self.path / f"earlier-{number}").exists():
            number += 1
        earlier.mkdir()
        for path in left:
            path.rename(earlier / path.name)
        return earlier


def read_log(path: Path) -> list[dict[str, Any]]:
    """Return the events of a run in order; those that a resumed run took again are there once, as it took them.

    Raises UserError for a file that is no log. A line that was cut when the process ended is left out.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the log {path}: {error}; give a run's {path.name}") from None
    events: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
            if event["event"] == "start":
                events = [earlier for earlier in events if earlier["step"] <= event["step"]]
        except (ValueError, KeyError, TypeError):
            continue
        events.append(event)
    return events
