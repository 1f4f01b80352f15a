import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mpi.launch import BIN, ENVIRONMENT, mpirun

CONFIG = """\
epochs: 1
data: {name: digits}
model: {name: resnet, blocks: [1], widths: [4]}
batch_size: {global_batch: 64, ladder: [{seen: 700, global_batch: 128}]}
learning_rate: 0.1
solver: {name: sgd}
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG)
    return path


def command(*arguments, cwd):
    return subprocess.run(
        [BIN / "nnabla-torus", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def events(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_of_one_rank_says_so_and_leaves_what_it_should(config, tmp_path):
    done = command("train", config, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 rank (mpirun -n N would start more)")
    assert lines[-3:] == [
        "log runs/small/log.jsonl",
        "checkpoint runs/small/checkpoints/step-00000017",
        "plots runs/small/plots.png",
    ]
    folder = tmp_path / "runs/small"
    found = events(folder)
    first, last = found[0], found[-1]
    assert first["event"] == "start" and first["grid"] == [1, 1] and first["config"]["batch_size"]["global_batch"] == 64
    assert [event["batch_size"] for event in found if event["event"] == "batch_size"] == [64, 128]
    # 11 steps of 64 reach 704, 5 of 128 reach 1,344, 93 are left.
    assert [event["batch_size"] for event in found if event["event"] == "step"] == [64] * 11 + [128] * 5 + [93]
    top1 = [event["top1"] for event in found if event["event"] == "evaluation"]
    assert [event["event"] for event in found[-3:]] == ["evaluation", "checkpoint", "end"]
    assert last["top1"] == top1[-1] and last["samples"] == 1437 and last["seconds"] > 0
    assert f"test accuracy {top1[-1]:.2%}" in lines[-4]


def test_a_killed_run_goes_on_and_ends_where_an_uninterrupted_one_ends(config, tmp_path):
    quick = ["train", config, "epochs=2", "checkpoint.every=0.25", "checkpoint.keep=100"]
    assert mpirun(2, ["nnabla-torus", *quick, "output=whole"], cwd=tmp_path).returncode == 0
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "cut/checkpoints/latest").write_text("step-00000006\n")  # as if killed soon after that
    log = (tmp_path / "cut/log.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut/log.jsonl").write_text("".join(log[:12]) + log[12][:20] + "\n")
    done = mpirun(2, ["nnabla-torus", *quick, "output=cut", "--resume"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "going on from cut/checkpoints/step-00000006, step 6" in done.stdout
    assert "changed since then: output whole -> cut" in done.stdout
    last = (tmp_path / "whole/checkpoints/latest").read_text().strip()
    whole, cut = (files(tmp_path / name / "checkpoints" / last) for name in ("whole", "cut"))
    for file in map(Path, ("parameters.h5", "solver.h5", "ranks.h5")):
        assert whole[file] == cut[file]


def test_resume_without_a_checkpoint_starts_afresh_and_says_so(config, tmp_path):
    done = command("train", config, "output=new", "--resume", cwd=tmp_path)
    assert done.returncode == 0 and "no checkpoint in new/checkpoints: starting afresh" in done.stdout


def test_what_cannot_be_gone_on_with_is_one_line_and_left_alone(config, tmp_path):
    assert command("train", config, "output=run", cwd=tmp_path).returncode == 0
    newest = tmp_path / "run/checkpoints/step-00000017"
    cases = {
        "is of another model: its head/affine/W is 4x10, here it is 6x10": ["model.widths=[6]"],
        "has seed 0, here it is 1": ["seed=1"],
        "has solver sgd, here it is nesterov": ["solver.name=nesterov"],
    }
    for message, overrides in cases.items():
        refused(config, tmp_path, message, overrides)
    state = newest / "state.json"
    state.write_text(state.read_text()[:-5])
    refused(config, tmp_path, "step-00000017 is damaged: state.json is not as it was written", [])
    shutil.rmtree(newest)
    refused(config, tmp_path, "latest names 'step-00000017', which is not there", [])


def refused(config, tmp_path, message, overrides):
    before = files(tmp_path)
    done = command("train", config, "output=run", "--resume", *overrides, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "none.yaml"], "cannot read the configuration none.yaml: No such file or directory"),
        (["train", "small.yaml", "sead=1"], "sead is not a key; did you mean seed?"),
        (["train", "small.yaml", "epochs=many"], "epochs is 'many'; it must be a whole number"),
        (["train", "small.yaml", "grid=2x2"], "grid 2x2 needs 4 ranks but there are 1"),
        (["train", "small.yaml", "device=cuda"], "device cuda needs nnabla-ext-cuda120"),
        (["train", "small.yaml", "algorithm=star"], "star"),
        (["train"], "Missing argument 'CONFIG'"),
        (["schedule", "small.yaml", "--ranks", "0"], "0 is not in the range x>=1"),
        (["trane", "small.yaml"], "No such command 'trane'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(config, tmp_path, arguments, message):
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_schedule_prints_what_a_run_does(config, tmp_path):
    done = command("schedule", config, "--ranks", "3", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "# 1 epochs of 1,437 samples on 3 ranks: 17 steps"
    document = json.loads(command("schedule", config, "--ranks", "3", "--json", cwd=tmp_path).stdout)
    assert (document["ranks"], document["steps"], document["samples"]) == (3, 17, 1437)
    assert [(stage["steps"], stage["global_batch"], stage["batch_per_rank"]) for stage in document["stages"]] == [
        (11, 64, [21, 22]),
        (5, 128, [42, 43]),
        (1, 93, [31, 31]),
    ]
