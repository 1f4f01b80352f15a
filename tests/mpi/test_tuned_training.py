"""Training by a tuning table; apart from the engine's own tests, which run without nnabla too."""

import json
from pathlib import Path

from tests.mpi.launch import mpirun

CONFIGS = Path(__file__).parent.parent.parent / "configs"


def test_training_takes_what_the_table_says_and_logs_it(tmp_path):
    row = {"size": 65536, "grid": "1x2", "inside": "library", "between": "library"}
    slow, fast = {**row, "algorithm": "ring", "grid": "2", "time_us": 9.0}, {**row, "algorithm": "mesh", "time_us": 3.0}
    table = tmp_path / "table.json"
    table.write_text(json.dumps({"worlds": [{"ranks_per_host": [2], "rows": [slow, fast]}]}))
    keys = ["epochs=1", f"output={tmp_path / 'run'}", "algorithm=auto", f"tuning={table}", "model.widths=[4,4,4]"]
    done = mpirun(2, ["nnabla-torus", "train", CONFIGS / "digits.yaml", *keys], timeout=120)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [event["algorithms"] for event in events if event["event"] == "exchange"] == [["mesh (library, library)"]]


def test_training_refuses_a_table_that_is_none(tmp_path):
    done = mpirun(2, ["nnabla-torus", "train", CONFIGS / "digits.yaml", "tuning=nowhere.json"])
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 2 and len(told) == 1 and "nowhere.json cannot be read" in told[0]
