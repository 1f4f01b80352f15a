"""Fills the table that `algorithm: auto` chooses from, by timing every plan with every means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from mpi4py import MPI

from nnabla_torus.all_reduce import AllReduce, hosts_of
from nnabla_torus.bench.all_reduce import environment, run
from nnabla_torus.grid import ranks_per_host
from nnabla_torus.means import MESSAGES, SHARED_MEMORY, Means
from nnabla_torus.plan import Plan
from nnabla_torus.tuning import Choice, Row, World


def tune(comm: MPI.Comm, plans: Mapping[str, Plan], sizes: Sequence[int], iterations: int) -> World:
    """Time every plan with every means that these ranks have, and return the measurements for a tuning table."""
    hosts = ranks_per_host(hosts_of(comm))
    inside = (SHARED_MEMORY, "library") if max(hosts) > 1 else (SHARED_MEMORY,)
    between = MESSAGES if len(hosts) > 1 else ("library",)
    choices = [
        Choice(plan.name, Means(*means))
        for plan in plans.values()
        for means in ([(SHARED_MEMORY, "library")] if plan.library else product(inside, between))
    ]
    by_name = {plan.name: plan for plan in plans.values()}
    runners = {str(choice): AllReduce(by_name[choice.algorithm], comm, choice.means) for choice in choices}
    named = dict(zip(runners, choices))
    rows = tuple(
        Row(
            size=result.size,
            algorithm=named[result.algorithm].algorithm,
            grid=result.grid,
            inside=named[result.algorithm].means.inside,
            between=named[result.algorithm].means.between,
            time_us=result.time_us,
        )
        for result in run(comm, runners, sizes, "float32", iterations, warmup=2, check=True)
    )
    for runner in runners.values():
        runner.close()
    return World(ranks_per_host=hosts, environment=environment(comm), rows=rows)
