"""Measures what TCP carries between hosts when every host sends and receives at once: the rate that bounds a ring.

Run it on the ranks of a job, one per host or more:

    nnabla-torus emulate --hosts 4 --rate 100mbit -- python -m nnabla_torus.bench.tcp_rate

The first rank of every host sends to the next host and receives from the one before, through one plain socket each,
so every link is busy both ways and carries the acknowledgements of the other way too.
"""

from __future__ import annotations

import json
import socket
import threading
import time

import click
from mpi4py import MPI

from nnabla_torus.failure import UserError, ending_all_ranks

CHUNK = 1 << 16  # B handed to the socket at once
WARMUP_S = 0.5  # until the windows have opened and the links' burst is used up


def measure(comm: MPI.Comm, seconds: float) -> dict[str, float]:
    """Return each host's name and the payload in B/s that it received while it sent as fast as it could.

    Collective over `comm`. Raises UserError when all ranks are on one host.
    """
    name = socket.gethostname()
    first_ranks = {host: rank for rank, host in reversed(list(enumerate(comm.allgather(name))))}
    if len(first_ranks) < 2:
        raise UserError(f"the two-way TCP rate needs ranks on at least 2 hosts; all are on {name}")
    leads = first_ranks[name] == comm.Get_rank()
    leaders = comm.Split(0 if leads else MPI.UNDEFINED, comm.Get_rank())
    rates = None
    if leads:
        received = _exchange(leaders, seconds)
        rates = dict(leaders.allgather((name, received)))
        leaders.Free()
    _wait(comm)
    found: dict[str, float] = comm.bcast(rates, root=0)
    return found


def _exchange(comm: MPI.Comm, seconds: float) -> float:
    rank, size = comm.Get_rank(), comm.Get_size()
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        peers = comm.allgather((socket.gethostname(), port))
        with socket.create_connection(peers[(rank + 1) % size]) as outgoing, server.accept()[0] as incoming:
            comm.Barrier()
            begin = time.perf_counter() + WARMUP_S
            sender = threading.Thread(target=_send_until, args=(outgoing, begin + seconds))
            sender.start()
            rate = _receive(incoming, begin, begin + seconds)
            sender.join()
    return rate


def _send_until(outgoing: socket.socket, end: float) -> None:
    chunk = bytes(CHUNK)
    while time.perf_counter() < end:
        outgoing.sendall(chunk)
    outgoing.shutdown(socket.SHUT_WR)


def _receive(incoming: socket.socket, begin: float, end: float) -> float:
    """Return the B/s that came between the two times; reads on to the end of the stream, so that no sender waits."""
    buffer = bytearray(CHUNK)
    received, first, last = 0, 0.0, 0.0
    while count := incoming.recv_into(buffer):
        now = time.perf_counter()
        if not first and now >= begin:
            first = last = now  # what this call brought came before
        elif first and now <= end:
            received, last = received + count, now
    return received / (last - first) if last > first else 0.0


def _wait(comm: MPI.Comm) -> None:
    """Wait for all ranks as MPI_Barrier does, but leave the cores to those who measure."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


@click.command()
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True, help="How long.")
def main(seconds: float) -> None:
    """Print the two-way TCP rate of the slowest host, and of each, in B/s as one JSON object."""
    rates = measure(MPI.COMM_WORLD, seconds)
    if MPI.COMM_WORLD.Get_rank() == 0:
        slowest = round(min(rates.values()))
        each = {host: round(rate) for host, rate in rates.items()}
        print(json.dumps({"two_way_tcp_B_per_s": slowest, "hosts": each, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    with ending_all_ranks():
        main(standalone_mode=False)
