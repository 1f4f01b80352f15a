"""How the groups of a plan exchange: names only, so that a choice can be checked before ranks start."""

from __future__ import annotations

from dataclasses import dataclass

from nnabla_torus.failure import UserError

SHARED_MEMORY = "shared_memory"

# What ranks on several hosts, or on one that cannot share memory, have; "library" is MPI's own collectives.
MESSAGES = ("library", "ring", "halving")


@dataclass(frozen=True)
class Means:
    """The means of groups `inside` one host, and of those `between` hosts.

    `inside` is "shared_memory" or one of `MESSAGES`, `between` one of `MESSAGES`. Raises UserError for others.
    """

    inside: str = SHARED_MEMORY
    between: str = "library"

    def __post_init__(self) -> None:
        for where, given, allowed in (
            ("inside", self.inside, (SHARED_MEMORY, *MESSAGES)),
            ("between", self.between, MESSAGES),
        ):
            if given not in allowed:
                raise UserError(f"means {where} hosts {given!r} is unknown; choose one of {', '.join(allowed)}")
