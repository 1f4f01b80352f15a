"""The emulated cluster: hosts that are apart, a command that ends as it does, and nothing left of either."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnabla_torus.bench import emulated_cluster, emulated_hosts
from nnabla_torus.bench.emulated_cluster import EmulatedCluster
from nnabla_torus.failure import UserError

COMMAND = Path(sys.executable).with_name("nnabla-torus")
LIMIT_S = 60

# Prints the namespaces a rank lives in, then stays.
STAY = "readlink /proc/self/ns/net /proc/self/ns/mnt /proc/self/ns/pid; sleep 600"


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "an emulated cluster needs root"
    if missing := [tool for tool in ("ip", "tc") if shutil.which(tool) is None]:
        return f"there is no {' and no '.join(missing)}: install iproute2"
    if subprocess.run(["unshare", "--net", "--mount", "true"], check=False, capture_output=True).returncode:
        return "this machine does not let root make namespaces"
    return None


REASON = why_not()
needs_namespaces = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def outside() -> str:
    """Links, network namespaces and mounts as this process sees them; without counters and clocks."""
    shown = [
        subprocess.run(words, check=True, capture_output=True, text=True).stdout
        for words in (["ip", "-oneline", "link"], ["ip", "netns"], ["ip", "route"], ["hostname"])
    ]
    temporary = [path.name for path in Path("/dev/shm").iterdir() if "host" in path.name]
    return "\n".join([*shown, Path("/proc/self/mounts").read_text(), *temporary])


@pytest.fixture
def untouched() -> Iterator[None]:
    before = outside()
    yield
    assert outside() == before


def alive_in(namespaces: set[str]) -> list[str]:
    """Processes that still live in one of the namespaces."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        for link in process.glob("ns/*"):
            try:
                if os.readlink(link) in namespaces:
                    found.append(str(link))
            except OSError:  # it ended while we looked
                pass
    return found


def assert_gone(namespaces: set[str]) -> None:
    deadline = time.monotonic() + 10
    while alive := alive_in(namespaces):
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


@contextlib.contextmanager
def staying(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], set[str]]]:
    """Start a command that stays on two hosts; give its process and all namespaces of the cluster."""
    # A test run in the background of a shell ignores SIGINT, and so would what it starts.
    with_signals = ["env", "--default-signal=INT,TERM,HUP"]
    process = subprocess.Popen(
        [*with_signals, str(COMMAND), "emulate", "--hosts", "2", *arguments, "--", "sh", "-c", STAY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        namespaces = {process.stdout.readline().strip() for _ in range(6)}
        assert len(namespaces) == 5, namespaces  # network and mounts of each host, processes of both
        assert alive_in(namespaces)
        yield process, namespaces
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmulatedCluster]:
    with EmulatedCluster(hosts=3, slots=[4, 2, 3], rate="100mbit") as made:
        yield made


def run(cluster: EmulatedCluster, command: list[str], **options: object) -> list[str]:
    done = cluster.run(command, timeout=LIMIT_S, capture_output=True, **options)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def rank_to_host(cluster: EmulatedCluster, **options: object) -> list[int]:
    lines = run(cluster, ["sh", "-c", "echo $OMPI_COMM_WORLD_RANK $(hostname)"], **options)
    hosts = dict(line.split() for line in lines)
    return [cluster.names.index(hosts[str(rank)]) for rank in range(len(hosts))]


@needs_namespaces
def test_ranks_fill_the_slots_host_by_host(cluster: EmulatedCluster) -> None:
    assert rank_to_host(cluster) == [0, 0, 0, 0, 1, 1, 2, 2, 2]


@needs_namespaces
def test_ranks_are_dealt_round_robin_on_request(cluster: EmulatedCluster) -> None:
    assert rank_to_host(cluster, map_by="node") == [0, 1, 2, 0, 1, 2, 0, 2, 0]
    assert rank_to_host(cluster, map_by="node", ranks=4) == [0, 1, 2, 0]


@needs_namespaces
def test_fewer_ranks_than_slots(cluster: EmulatedCluster) -> None:
    assert rank_to_host(cluster, ranks=5) == [0, 0, 0, 0, 1]


@needs_namespaces
def test_a_command_may_end_at_once(cluster: EmulatedCluster) -> None:
    """Open MPI's daemons miss the end of such ranks in half of all runs unless they are kept to one thread."""
    for _ in range(10):
        run(cluster, ["true"])


@needs_namespaces
def test_a_sum_over_hosts_is_right(cluster: EmulatedCluster) -> None:
    program = (
        "from mpi4py import MPI; import numpy; world = MPI.COMM_WORLD;"
        "ours = numpy.arange(100_000.) * (world.rank + 1);"
        "total = numpy.empty_like(ours); world.Allreduce(ours, total);"
        "print(numpy.array_equal(total, numpy.arange(100_000.) * 45))"  # 1 + 2 + ... + 9
    )
    assert run(cluster, ["python", "-c", program]) == ["True"] * 9
    over_tcp_alone = [("btl", "self,tcp")]
    assert run(cluster, ["python", "-c", program], mca=over_tcp_alone) == ["True"] * 9


@needs_namespaces
def test_hosts_share_no_memory_and_ranks_of_one_do(cluster: EmulatedCluster) -> None:
    program = (
        "from mpi4py import MPI; import os, socket; world = MPI.COMM_WORLD;"
        "open(f'/dev/shm/of-rank-{world.rank}', 'w').close(); world.Barrier();"
        "print(socket.gethostname(), *sorted(name for name in os.listdir('/dev/shm') if name.startswith('of-rank')))"
    )
    seen = Counter(run(cluster, ["python", "-c", program]))
    assert seen == {
        f"{cluster.names[0]} of-rank-0 of-rank-1 of-rank-2 of-rank-3": 4,
        f"{cluster.names[1]} of-rank-4 of-rank-5": 2,
        f"{cluster.names[2]} of-rank-6 of-rank-7 of-rank-8": 3,
    }
    namespaces = {
        kind: len(set(run(cluster, ["readlink", f"/proc/self/ns/{kind}"])) | {os.readlink(f"/proc/self/ns/{kind}")})
        for kind in ("net", "uts", "ipc", "mnt")
    }
    assert namespaces == {"net": 4, "uts": 4, "ipc": 4, "mnt": 4}  # of three hosts and of this process


@needs_namespaces
def test_the_command_finds_its_surroundings(cluster: EmulatedCluster) -> None:
    program = (
        "import os, sys, json; print(json.dumps([os.getcwd(), sys.executable, os.environ['GREETING'],"
        "os.environ['NNABLA_TORUS_EMULATED_CLUSTER']]))"
    )
    lines = run(cluster, ["python", "-c", program], environment={"GREETING": "two words"})
    assert len(set(lines)) == 1
    folder, python, greeting, description = json.loads(lines[0])
    assert (folder, python, greeting) == (os.getcwd(), sys.executable, "two words")
    assert json.loads(description) == {
        "hosts": 3,
        "slots": [4, 2, 3],
        "rate": "100mbit",
        "mtu": 1500,
        "burst": 32768,
        "shm_size": "50%",
    }


@needs_namespaces
def test_links_are_as_asked() -> None:
    with EmulatedCluster(hosts=2, slots=1, rate="2.5gbit", mtu=9000, burst=100_000, shm_size="64m") as cluster:
        show = "ip link show eth0; tc qdisc show dev eth0; df --output=size /dev/shm | tail -1"
        text = "\n".join(run(cluster, ["sh", "-c", show], ranks=1))
    assert "mtu 9000" in text
    shaped = re.search(r"tbf .* rate 2500Mbit burst (\d+)b", text)
    assert shaped is not None, text
    assert abs(int(shaped[1]) - 100_000) < 1000  # the kernel keeps it as a time at that rate
    assert text.split()[-1] == "65536"  # in units of 1 KiB


@needs_namespaces
def test_the_rate_is_about_what_was_asked() -> None:
    """Physics, with a wide margin: full duplex, headers and acknowledgements off the rate, nothing above it."""
    with EmulatedCluster(hosts=2, slots=2, rate="40mbit") as cluster:
        lines = run(cluster, ["python", "-m", "nnabla_torus.bench.tcp_rate", "--seconds", "1"])
    result = json.loads(lines[0])
    assert set(result["hosts"]) == set(cluster.names)
    assert result["two_way_tcp_B_per_s"] == min(result["hosts"].values())
    assert all(0.5 * 5e6 < rate < 1.05 * 5e6 for rate in result["hosts"].values()), result


@needs_namespaces
def test_the_bench_runs_on_it_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    bench = ["nnabla-torus", "bench", "-b", "4K", "-e", "4K", "-n", "1", "-w", "0", "--json", str(file)]
    options = ["--slots", "2,1", "--rate", "200mbit", "--burst", "16K", "--map-by", "node"]
    done = subprocess.run(
        [str(COMMAND), "emulate", *options, "--", *bench],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    environment = json.loads(file.read_text())["environment"]
    assert environment["ranks_per_host"] == [2, 1]
    assert environment["emulated_cluster"] == {
        "hosts": 2,
        "slots": [2, 1],
        "rate": "200mbit",
        "mtu": 1500,
        "burst": 16384,
        "shm_size": "50%",
    }


@needs_namespaces
@pytest.mark.usefixtures("untouched")
def test_two_at_once_do_not_meet() -> None:
    with EmulatedCluster(2, 1, "100mbit") as first, EmulatedCluster(2, 1, "100mbit") as second:
        assert not set(first.names) & set(second.names)
        assert sorted(run(first, ["hostname"])) == list(first.names)
        assert sorted(run(second, ["hostname"])) == list(second.names)
        known = run(first, ["getent", "hosts", *first.names], ranks=1)
        assert [line.split()[1] for line in known] == list(first.names)
        unknown = second.run(["getent", "hosts", first.names[1]], ranks=1, capture_output=True, timeout=LIMIT_S)
        assert unknown.returncode != 0


@needs_namespaces
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("status", [0, 7])
def test_the_status_is_passed_on_and_nothing_is_left(status: int) -> None:
    script = f"readlink /proc/self/ns/net /proc/self/ns/mnt /proc/self/ns/pid; exit {status}"
    done = subprocess.run(
        [str(COMMAND), "emulate", "--hosts", "2", "--", "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == status, done.stderr
    namespaces = set(re.findall(r"\w+:\[\d+\]", done.stdout))
    assert len(namespaces) >= 3  # mpirun may end one host's rank before it has printed
    assert_gone(namespaces)


@needs_namespaces
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, -1), (signal.SIGKILL, -9)],
)
def test_nothing_is_left_after_a_signal(number: signal.Signals, status: int) -> None:
    with staying() as (process, namespaces):
        process.send_signal(number)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == status
        assert_gone(namespaces)


@needs_namespaces
@pytest.mark.usefixtures("untouched")
def test_the_time_limit_ends_the_command() -> None:
    with staying("--timeout", "1") as (process, namespaces):
        _, err = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 124
        assert "error: sh was ended after --timeout 1 s" in err
        assert_gone(namespaces)


@needs_namespaces
def test_a_cluster_outlives_a_command_that_took_too_long(cluster: EmulatedCluster) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(["sleep", "600"], timeout=1, capture_output=True)
    assert run(cluster, ["hostname"], ranks=1) == [cluster.names[0]]


@needs_namespaces
@pytest.mark.usefixtures("untouched")
def test_a_command_that_does_not_end_takes_the_cluster_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_cluster, "GRACE_S", 0)
    with EmulatedCluster(1, 1, "100mbit") as deaf:
        with pytest.raises(subprocess.TimeoutExpired):
            deaf.run(["sleep", "600"], timeout=1)
        with pytest.raises(RuntimeError, match="closed"):
            deaf.run(["hostname"], timeout=LIMIT_S)


@needs_namespaces
def test_a_stopped_command_is_ended(cluster: EmulatedCluster) -> None:
    stop_mpirun = ["sh", "-c", "kill -STOP $PPID; sleep 600"]
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.run(stop_mpirun, ranks=1, timeout=1, capture_output=True)
    assert run(cluster, ["hostname"], ranks=1) == [cluster.names[0]]


@needs_namespaces
def test_a_closed_cluster_runs_nothing() -> None:
    with EmulatedCluster(1, 1, "100mbit") as closed:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        closed.run(["hostname"], timeout=LIMIT_S)


@needs_namespaces
@pytest.mark.usefixtures("untouched")
def test_what_the_kernel_refuses_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_hosts, "INTERFACE", "a-name-that-is-too-long")
    with pytest.raises(UserError, match=r"could not be made: \S") as caught:
        EmulatedCluster(2, 1, "1mbit").__enter__()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hosts": 0}, "0 hosts cannot be made; from 1 to 1000 can"),
        ({"slots": [1, 2, 3]}, "slots for 3 hosts do not fit 2 hosts"),
        ({"slots": [1, 0]}, "slots 1,0 leave a host without ranks"),
        ({"rate": "100"}, "rate '100' is not a rate"),
        ({"rate": "0.0mbit"}, "rate '0.0mbit' is not a rate"),
        ({"mtu": 100}, "MTU 100 is not possible"),
        (
            {"mtu": 9000, "burst": 9013},
            "burst 9013 lets no full frame pass; with an MTU of 9000 it needs at least 9014",
        ),
        ({"shm_size": "much"}, "size of /dev/shm 'much' is not a size"),
    ],
)
def test_what_cannot_be_made_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        EmulatedCluster(**{"hosts": 2, "slots": 1, "rate": "1mbit", **options})  # type: ignore[arg-type]


@needs_namespaces
def test_more_ranks_than_slots_are_refused(cluster: EmulatedCluster) -> None:
    with pytest.raises(UserError, match="10 ranks do not fit the cluster's 9 slots; from 1 to 9 do"):
        cluster.run(["hostname"], ranks=10)


def test_without_root_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match="needs root"), EmulatedCluster(2, 1, "1mbit"):
        pass


def test_without_iproute2_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(emulated_hosts.shutil, "which", lambda tool: None if tool in ("ip", "tc") else tool)
    with pytest.raises(UserError, match="needs ip and tc; install iproute2"), EmulatedCluster(2, 1, "1mbit"):
        pass


def test_a_users_mistake_ends_the_command_with_2() -> None:
    done = subprocess.run(
        [str(COMMAND), "emulate", "--slots", "1,x", "--", "true"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "'1,x' does not count slots" in done.stderr
