"""What is wrong with a configuration, in one line: pydantic's first finding in the user's own words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

# What would be right, by pydantic's kind of error.
_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "model_type": "a section of keys and values",
    "model_attributes_type": "a section of keys and values",
    "dict_type": "a section of keys and values",
    "union_tag_not_found": "a section with a name",
}


def one_line(error: ValidationError, values: object, model: type[BaseModel]) -> str:
    """Return the first mistake that `model` finds in `values`, in one line."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    path = _path(first["loc"], values, missing=kind == "missing")
    key = ".".join(map(str, path)) or "the configuration"
    if kind == "missing":
        return f"{key} is missing; add it"
    if kind == "extra_forbidden":
        return f"{key} is not a key{_hint(path, values, model)}"
    if kind == "value_error":
        return f"{key} {context['error']}"
    if kind in ("union_tag_invalid", "literal_error"):
        name = f"{key}.name" if kind == "union_tag_invalid" else key
        wanted = context.get("expected_tags") or context.get("expected")
        value = context.get("tag", first["input"])
        return f"{name} is {value!r}; it must be {' or '.join(str(wanted).split(', '))}"
    wanted = f"must be {_EXPECTED[kind]}" if kind in _EXPECTED else re.sub(r"^\w+ should", "must", first["msg"])
    return f"{key} is {first['input']!r}; it {wanted}"


def _path(location: Sequence[int | str], values: Any, missing: bool) -> list[int | str]:
    """Return where a mistake is, in the user's keys: pydantic's location without the names of union members."""
    path: list[int | str] = []
    for part in location:
        if _has(values, part):
            values = values[part]
            path.append(part)
    return [*path, location[-1]] if missing else path


def _has(values: Any, part: int | str) -> bool:
    if isinstance(values, dict):
        return part in values
    return isinstance(values, (list, tuple)) and isinstance(part, int) and part < len(values)


def _hint(path: Sequence[int | str], values: Any, model: type[BaseModel]) -> str:
    """Return the key that may have been meant, or all that may stand there."""
    known = sorted(_keys(model, path[:-1], values))
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    where = f" of {'.'.join(map(str, path[:-1]))}" if len(path) > 1 else ""
    return f"; did you mean {close[0]}?" if close else f"; the keys{where} are {', '.join(known)}"


def _keys(model: type[BaseModel], path: Sequence[int | str], values: Any) -> set[str]:
    """Return the keys that may stand at a path of `values`, which `model` describes."""
    if not path:
        return set(model.model_fields)
    head, *rest = path
    if isinstance(head, int):
        return _keys(model, rest, values[head])
    inner = _models(model.model_fields[head].annotation)
    below = values[head]
    if isinstance(below, dict) and "name" in below:  # of several kinds of section, the one that was named
        inner = [kind for kind in inner if below["name"] in _names(kind)]
    return set().union(*(_keys(kind, rest, below) for kind in inner))


def _names(section: type[BaseModel]) -> tuple[str, ...]:
    """Return the names under which a section may be asked for."""
    name = section.model_fields.get("name")
    return getattr(name.annotation, "__args__", ()) if name else ()


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the sections in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models(argument)]
