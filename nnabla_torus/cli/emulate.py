"""`nnabla-torus emulate`: any command on several hosts that this machine pretends to have."""

from __future__ import annotations

import signal
import subprocess
from types import FrameType

import click

from nnabla_torus.cli.bench import Size

EXIT_TIMEOUT = 124  # as timeout(1) has it


class Slots(click.ParamType):
    """Slots of every host: one number, or one per host with commas between."""

    name = "slots"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Return the numbers."""
        try:
            return tuple(int(number) for number in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r} does not count slots; write 4, or one number per host as in 4,2,3", param, ctx)


@click.command()
@click.option("--hosts", type=int, help="Number of hosts; as many as --slots has numbers unless given.")
@click.option("--slots", type=Slots(), default="1", show_default=True, help="Slots per host: 4, or 4,2,3 for each.")
@click.option("--rate", default="100mbit", show_default=True, help="Rate of each host's link, each way, as tc says it.")
@click.option("--mtu", type=int, default=1500, show_default=True, help="MTU in bytes.")
@click.option("--burst", type=Size(), default="32K", show_default=True, help="What a link passes at once unshaped.")
@click.option("--shm-size", default="50%", show_default=True, help="Each host's /dev/shm: 512m, 2g, 50% of memory.")
@click.option("-n", "--ranks", type=int, help="Number of ranks; all slots unless given.")
@click.option(
    "--map-by",
    type=click.Choice(["slot", "node"]),
    default="slot",
    show_default=True,
    help="Fill host by host, or deal ranks round-robin.",
)
@click.option("--mca", nargs=2, multiple=True, metavar="NAME VALUE", help="A parameter for Open MPI; may be repeated.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="End the command after so many seconds.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def emulate(
    hosts: int | None,
    slots: tuple[int, ...],
    rate: str,
    mtu: int,
    burst: int,
    shm_size: str,
    ranks: int | None,
    map_by: str,
    mca: tuple[tuple[str, str], ...],
    timeout: float | None,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND with mpirun on several hosts that this machine pretends to have.

    The hosts are network namespaces, joined by links of the rate asked for; ranks of one host share memory, ranks of
    different hosts talk over TCP. Needs root and iproute2. Ends with COMMAND's status, or 124 after --timeout.

    Example: nnabla-torus emulate --hosts 4 --slots 4 --rate 100mbit -- nnabla-torus bench
    """
    from nnabla_torus.bench.emulated_cluster import EmulatedCluster

    if hosts is None:
        hosts = len(slots)
    signal.signal(signal.SIGTERM, _end)
    with EmulatedCluster(hosts, slots if len(slots) > 1 else slots[0], rate, mtu, burst, shm_size) as cluster:
        try:
            done = cluster.run(command, ranks, map_by=map_by, mca=mca, timeout=timeout)
        except subprocess.TimeoutExpired:
            click.echo(f"error: {command[0]} was ended after --timeout {timeout:g} s", err=True)
            return EXIT_TIMEOUT
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
