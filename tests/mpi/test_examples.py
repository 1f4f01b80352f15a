import re
from pathlib import Path

from tests.mpi.launch import mpirun

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_the_loop_with_one_line_changed_learns():
    done = mpirun(3, [EXAMPLES / "drop_in.py"])
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout)]
    assert len(losses) == 5 and losses[-1] < 0.5 * 2.3  # ln 10 is where it begins
