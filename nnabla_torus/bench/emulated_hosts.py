"""Several hosts on one machine, made of Linux namespaces and joined by links of a chosen rate.

      host0           host1           host2          each: own network, host name, IPC and /dev/shm
    +--------+      +--------+      +--------+
    |  eth0  |      |  eth0  |      |  eth0  |       shaped on the way out
    +---||---+      +---||---+      +---||---+
        ||  veth        ||              ||
    +-[port0]--------[port1]---------[port2]-+       shaped on the way to the host
    |                bridge                  |
    +----------------------------------------+

Nothing of it has a name or an interface outside. All its processes live in one PID namespace, whose process 1 reads
from a pipe that only the maker holds: however the maker ends, SIGKILL included, the pipe closes, process 1 ends, the
kernel kills the rest and takes away the namespaces with their links and mounts. So nothing can be left over.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
import shutil
import subprocess
from dataclasses import asdict, dataclass

from nnabla_torus.bench.enter_host import entering
from nnabla_torus.failure import UserError

# RFC 2544 sets these addresses aside for measuring networks; no outside network is reachable from the hosts anyway.
NETWORK = ipaddress.ip_network("198.18.0.0/15")
INTERFACE = "eth0"
MOST_HOSTS = 1000  # a Linux bridge has 1023 ports
QUEUE = "50ms"  # what a link lets wait, in time at its rate, before it drops
FRAME_HEADER = 14  # B, which a link counts beside the MTU

TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "env": "coreutils"}

# Process 1. Arguments: a name and an address per host. Prints its process number as the outside sees it, then the
# number, in its own PID namespace, of the process that holds each host.
SWITCH = r"""
read -r outside _ </proc/self/stat
echo "$outside"
mount -t proc proc /proc
ip link add bridge mtu "$MTU" type bridge
ip link set bridge up
index=0
while [ $# -gt 0 ]; do
    NAME=$1 ADDRESS=$2 PORT=port$index unshare --net --uts --ipc --mount sh -ec "$HOST"
    ip link set "port$index" master bridge up
    tc qdisc add dev "port$index" root tbf rate "$RATE" burst "$BURST" latency "$QUEUE"
    index=$((index + 1))
    shift 2
done
# Without SIGCHLD no orphan of the cluster stays as a zombie.
exec env --ignore-signal=CHLD cat
"""

# Sets up a host from inside its new namespaces and leaves a process there to hold them. The file with the hosts'
# names lies in the host's own memory and, once mounted over /etc/hosts, under no other path.
HOST = r"""
echo "$NAME" >/proc/sys/kernel/hostname
mount -t tmpfs -o size="$SHM_SIZE" tmpfs /dev/shm
printf %s "$NAMES" >/dev/shm/names
mount --bind /dev/shm/names /etc/hosts
rm /dev/shm/names
ip link set lo up
ip link add "$INTERFACE" mtu "$MTU" type veth peer name "$PORT" mtu "$MTU" netns 1
ip address add "$ADDRESS" dev "$INTERFACE"
ip link set "$INTERFACE" up
tc qdisc add dev "$INTERFACE" root tbf rate "$RATE" burst "$BURST" latency "$QUEUE"
sleep infinity </dev/null >/dev/null 2>&1 &
echo $!
"""


@dataclass(frozen=True)
class Description:
    """What a cluster is: slots per host (the ranks it takes), the rate of each link and direction as tc writes it,
    MTU and burst in B, the size of each host's /dev/shm as tmpfs takes it.

    Raises UserError for what cannot be made.
    """

    slots: tuple[int, ...]
    rate: str
    mtu: int = 1500
    burst: int = 32768
    shm_size: str = "50%"

    def __post_init__(self) -> None:
        if not 1 <= len(self.slots) <= MOST_HOSTS:
            raise UserError(f"{len(self.slots)} hosts cannot be made; from 1 to {MOST_HOSTS} can")
        if min(self.slots) < 1:
            raise UserError(f"slots {','.join(map(str, self.slots))} leave a host without ranks; each needs at least 1")
        if not re.fullmatch(r"(?=.*[1-9])\d+(\.\d+)?[kmg]?bit", self.rate):
            raise UserError(f"rate {self.rate!r} is not a rate; write bits per second as in 100mbit, 2.5gbit or 64kbit")
        if not 576 <= self.mtu <= 65535:
            raise UserError(f"MTU {self.mtu} is not possible; from 576 to 65535 bytes are")
        if self.burst < self.mtu + FRAME_HEADER:
            raise UserError(
                f"burst {self.burst} lets no full frame pass; with an MTU of {self.mtu} it needs at least "
                f"{self.mtu + FRAME_HEADER}"
            )
        if not re.fullmatch(r"[1-9]\d*[kmg%]?", self.shm_size):
            raise UserError(f"size of /dev/shm {self.shm_size!r} is not a size; write it as in 512m, 2g or 50%")

    def as_json(self) -> str:
        """Return the description as a JSON object: hosts, slots, rate, mtu, burst, shm_size."""
        return json.dumps({"hosts": len(self.slots), **asdict(self)})


class EmulatedHosts:
    """The hosts of a description, there from construction until `close`.

    `names` are the host names, of this cluster alone; `pids` the processes that hold the hosts, as numbered in the
    cluster's PID namespace. Raises UserError when this machine or user cannot make them.
    """

    def __init__(self, description: Description) -> None:
        _check_machine()
        token = secrets.token_hex(3)
        self.names = tuple(f"host{index}-{token}" for index in range(len(description.slots)))
        addresses = {name: str(NETWORK[index + 1]) for index, name in enumerate(self.names)}
        names = "".join(f"{address} {name}\n" for name, address in addresses.items())
        self._process = subprocess.Popen(
            [
                *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--net", "sh", "-ec", SWITCH, "switch"),
                *(word for name, address in addresses.items() for word in (name, f"{address}/{NETWORK.prefixlen}")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "HOST": HOST,
                "NAMES": f"127.0.0.1 localhost\n{names}",
                "INTERFACE": INTERFACE,
                "RATE": description.rate,
                "BURST": str(description.burst),
                "MTU": str(description.mtu),
                "QUEUE": QUEUE,
                "SHM_SIZE": description.shm_size,
            },
            start_new_session=True,  # a terminal's Ctrl-C is for the maker alone
        )
        try:
            self._outside_pid, *self.pids = self._read_pids()
        except BaseException:
            self.close()
            raise

    def _read_pids(self) -> list[int]:
        assert self._process.stdout is not None and self._process.stderr is not None
        lines = [line for _, line in zip(range(1 + len(self.names)), self._process.stdout)]
        if len(lines) <= len(self.names):
            reason = "; ".join(self._process.stderr.read().split("\n")).strip("; ")
            raise UserError(
                f"the emulated cluster could not be made: {reason}; it needs the right to make namespaces and links "
                "(in a container: docker run --privileged)"
            )
        return [int(line) for line in lines]

    def entering(self, index: int) -> list[str]:
        """Return the command that runs what follows it, from outside, on one host."""
        if self._process.poll() is not None:  # its process numbers may be others' by now
            raise RuntimeError("the emulated cluster is closed")
        return ["nsenter", f"--target={self._outside_pid}", "--pid", "--mount", "--", *entering(self.pids[index])]

    def close(self) -> None:
        """Take the hosts away and wait until all their processes are gone; closing twice does no harm."""
        with self._process:  # closes the pipes, then waits
            pass


def _check_machine() -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        raise UserError("an emulated cluster needs root, for namespaces and links; run it as root, with sudo for one")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        packages = " ".join(dict.fromkeys(TOOLS[tool] for tool in missing))
        raise UserError(f"an emulated cluster needs {' and '.join(missing)}; install {packages}")
