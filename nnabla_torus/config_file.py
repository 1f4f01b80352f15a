"""Reads a configuration from YAML, changed by overrides of the command line.

    epochs: 30                          nnabla-torus train run.yaml epochs=3 solver.momentum=0.95
    batch_size: {global_batch: 64}

Every mistake is one line that names the key, the value, and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from nnabla_torus.config import Config, check
from nnabla_torus.failure import UserError


def load(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Return the configuration in a YAML file, changed by `key=value` overrides with dotted keys.

    `output` is runs/<name of the file> unless given. Raises UserError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"cannot read the configuration {path}: {reason}; give a YAML file") from None
    values = _parse(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path} holds {values!r}; a configuration is keys and values, as in epochs: 30")
    for override in overrides:
        _override(values, override)
    values.setdefault("output", f"runs/{path.stem}")
    return check(values)


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-4 is a number and a repeated key is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, refusing a key that is there twice and one that is no text."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is not text", problem_mark=node.start_mark)
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is there twice", problem_mark=node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be parsed"
        raise UserError(f"{where}{line}: {problem}; write YAML, as in epochs: 30") from None


def _override(values: dict[str, Any], override: str) -> None:
    """Set one dotted key."""
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        raise UserError(f"{override!r} is not an override; write key=value, as in solver.momentum=0.9")
    *parents, last = path.split(".")
    place: Any = values
    for position, key in enumerate(parents):
        if isinstance(place, dict) and place.get(key) is None:
            place[key] = {}
        place = _entry(place, key, ".".join(parents[: position + 1]), override)
    if isinstance(place, list):
        _entry(place, last, path, override)
        place[int(last)] = _parse(text, override)
    elif isinstance(place, dict):
        place[last] = _parse(text, override)
    else:
        raise UserError(f"{override!r}: {'.'.join(parents)} is {place!r}, which has no keys; give it a mapping first")


def _entry(place: Any, key: str, path: str, override: str) -> Any:
    if isinstance(place, dict):
        return place[key]
    if isinstance(place, list):
        if not key.isdigit() or int(key) >= len(place):
            raise UserError(f"{override!r}: {path} is not there; the list has entries 0 to {len(place) - 1}")
        return place[int(key)]
    raise UserError(f"{override!r}: {path} is below {place!r}, which has no keys")
