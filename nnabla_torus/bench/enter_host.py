"""Runs a command on one host of an emulated cluster: to Open MPI's launcher what ssh is between real hosts.

    python enter_host.py NAME=PID,NAME=PID,... NAME COMMAND...

PID is a process that holds the host's namespaces. Run as a file, so that it starts fast and imports nothing of ours.
"""

from __future__ import annotations

import os
import sys


def entering(pid: int) -> list[str]:
    """Return the command that runs what follows it on the host whose namespaces process `pid` holds."""
    return ["nsenter", f"--target={pid}", "--net", "--uts", "--ipc", "--mount", "--"]


if __name__ == "__main__":
    hosts, name, *command = sys.argv[1:]
    pids = dict(host.split("=") for host in hosts.split(","))
    # As with ssh, the words arrive as one line for a shell.
    arguments = [*entering(int(pids[name])), "sh", "-c", " ".join(command)]
    os.execvp(arguments[0], arguments)
