"""The engine on a Python for which nnabla has no wheels: installs, imports, runs `bench`, passes its tests."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENGINE_TESTS = [
    "tests/test_grid.py",
    "tests/test_plan.py",
    "tests/test_picture.py",
    "tests/test_tuning.py",
    "tests/collectives",
    "tests/mpi/test_engine.py",
    "tests/mpi/test_bench.py::test_a_table_and_json_of_every_algorithm",
    "tests/mpi/test_all_reduce.py::test_every_plan_on_every_grid_gives_the_plain_sum[6]",
]


def newer_python():
    """An interpreter of 3.11 to 3.13 that answers and can make environments, pyenv's included; None without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in ("3.13", "3.12", "3.11"):
        for candidate in (f"python{version}", *map(str, sorted(pyenv.glob(f"{version}*/bin/python")))):
            try:
                asked = subprocess.run([candidate, "-c", "import ensurepip"], capture_output=True, check=False)
            except OSError:
                continue
            if asked.returncode == 0:
                return candidate
    return None


@pytest.mark.timeout(600)
def test_install_bench_and_tests(tmp_path):
    python = newer_python()
    if python is None:
        pytest.skip("no Python 3.11 to 3.13 on this machine")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    bin_ = tmp_path / "venv" / "bin"
    install = [bin_ / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*install, f"{ROOT}[mpi]", "pytest", "pytest-timeout"], check=True, timeout=400)
    assert not list((tmp_path / "venv").glob("lib/python3*/site-packages/nnabla"))
    config = ROOT / "configs" / "digits.yaml"
    refused = subprocess.run([bin_ / "nnabla-torus", "train", config], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused.stderr
    assert "nnabla" in refused.stderr and "3.10" in refused.stderr
    tested = subprocess.run(
        [bin_ / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *ENGINE_TESTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout[-3000:]
