"""Which algorithm and which means are fastest on a world of ranks: a table that a measurement fills.

    {"worlds": [{"ranks_per_host": [4, 4], "environment": {...},
                 "rows": [{"size": 65536, "algorithm": "torus", "grid": "2x4",
                           "inside": "shared_memory", "between": "ring", "time_us": 410.2}, ...]}]}

`nnabla-torus bench --tune FILE` writes it, `algorithm: auto` and `algorithm: hybrid` read it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError

from nnabla_torus.failure import UserError
from nnabla_torus.grid import Grid
from nnabla_torus.means import Means
from nnabla_torus.plan import ALGORITHMS, make_plan

# Names that stand for a choice by size among algorithms: all of them, or Jia et al.'s (2018) hybrid of two.
CHOOSING: Mapping[str, Collection[str]] = MappingProxyType(
    {"auto": tuple(ALGORITHMS), "hybrid": ("ring", "hierarchical")}
)


@dataclass(frozen=True)
class Choice:
    """An algorithm and the means of its groups."""

    algorithm: str
    means: Means = field(default_factory=Means)

    def __str__(self) -> str:
        return f"{self.algorithm} ({self.means.inside}, {self.means.between})"


class Row(BaseModel):
    """One measurement: a buffer's size in bytes and the time of its all-reduce in us."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: PositiveInt
    algorithm: str
    grid: str
    inside: str
    between: str
    time_us: PositiveFloat


class World(BaseModel):
    """The measurements on one world of ranks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ranks_per_host: tuple[PositiveInt, ...]
    environment: dict[str, object] = {}
    rows: tuple[Row, ...]


class Table(BaseModel):
    """All worlds of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worlds: tuple[World, ...] = ()

    def with_world(self, world: World) -> Table:
        """Return a table with `world` in the place of an earlier one with the same ranks per host."""
        others = tuple(other for other in self.worlds if other.ranks_per_host != world.ranks_per_host)
        return Table(worlds=(*others, world))


def read_table(path: Path) -> Table:
    """Return the table in a file; raises UserError, in one line, for a file that is not one."""
    try:
        return Table.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"tuning table {path} cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(
            f"tuning table {path}: {where}: {first['msg']}; write it with nnabla-torus bench --tune {path}"
        ) from None


def fastest(
    table: Table, ranks_per_host: Sequence[int], size: int, algorithms: Collection[str], grid: Grid
) -> Choice | None:
    """Return the choice that was fastest at the measured size nearest to `size` bytes (by ratio).

    None when the table knows nothing of these ranks per host, or of these algorithms on this grid.
    """
    rows = [
        row
        for world in table.worlds
        if world.ranks_per_host == tuple(ranks_per_host)
        for row in world.rows
        if row.algorithm in algorithms and row.grid == str(make_plan(row.algorithm, grid).grid)
    ]
    if not rows:
        return None
    nearest = min({row.size for row in rows}, key=lambda measured: abs(log(measured / max(size, 1))))
    best = min((row for row in rows if row.size == nearest), key=lambda row: row.time_us)
    return Choice(best.algorithm, Means(best.inside, best.between))


def untuned(ranks_per_host: Sequence[int], algorithms: Collection[str]) -> Choice:
    """Return the choice where nothing was measured: one pass over one host's memory, else few bytes between hosts."""
    preferred = ("ring", "torus") if len(ranks_per_host) == 1 else ("torus", "hierarchical")
    return Choice(next(name for name in (*preferred, *algorithms) if name in algorithms))
