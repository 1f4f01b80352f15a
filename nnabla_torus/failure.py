"""How a job ends when something goes wrong: all ranks together, within seconds, with one reason shown."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator

EXIT_USER_ERROR = 2
EXIT_BUG = 1
# What fails on all ranks is told by rank 0 alone: the others wait this long for its abort to reach them.
GRACE_S = 1.0
# Time for the launcher to pass our last line on before it prints its own about the end.
FORWARDING_S = 0.2


class UserError(Exception):
    """A user's mistake, told in one line: what was wrong, with which value, what would be right."""


def launched_rank() -> tuple[int, int]:
    """(rank, size) that the launcher gave this process, (0, 1) without one; does not start MPI."""
    environment = os.environ
    for rank, size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
    ):
        if rank in environment and size in environment:
            return int(environment[rank]), int(environment[size])
    return 0, 1


@contextlib.contextmanager
def ending_all_ranks() -> Iterator[None]:
    """Run a block so that an exception on any rank ends the whole job (exit 2 for a UserError, else 1).

    A UserError is printed as one line, any other exception with its traceback and rank. Without MPI started, or on
    one rank, the process alone exits.
    """
    try:
        yield
    except SystemExit:
        raise
    except BaseException as error:  # whatever it was, the other ranks must not wait for this one
        _end(error)


def _end(error: BaseException) -> None:
    rank, size = launched_rank()
    mpi = sys.modules.get("mpi4py.MPI")
    running = mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized()
    if running and mpi is not None:  # a launcher that sets other variables is heard through MPI itself
        rank, size = mpi.COMM_WORLD.Get_rank(), mpi.COMM_WORLD.Get_size()
    if isinstance(error, KeyboardInterrupt):
        status, message = 130, "interrupted"
    elif isinstance(error, UserError):
        status, message = EXIT_USER_ERROR, f"error: {error}"
    else:
        status, message = EXIT_BUG, "".join(traceback.format_exception(type(error), error, error.__traceback__))
        if size > 1:
            message = f"rank {rank} of {size} failed:\n{message}"
    if rank != 0:
        time.sleep(GRACE_S)
    print(message.rstrip(), file=sys.stderr, flush=True)
    if size > 1:
        time.sleep(FORWARDING_S)
    if size > 1 and running and mpi is not None:
        sys.stdout.flush()
        mpi.COMM_WORLD.Abort(status)
    raise SystemExit(status)
