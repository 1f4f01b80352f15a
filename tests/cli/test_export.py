"""`nnabla-torus export`: the exported network is as good on the test set as the run's log says."""

import json
import os
import subprocess

import nnabla as nn
import pytest
from nnabla.utils.nnp_graph import NnpLoader

from nnabla_torus.data.digits import Digits
from tests.mpi.launch import BIN, ENVIRONMENT, mpirun

CONFIG = """\
epochs: 2
data: {name: digits}
model: {name: resnet, blocks: [1], widths: [8]}
batch_size: {global_batch: 64}
learning_rate: 0.1
solver: {name: sgd}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "small.yaml").write_text(CONFIG)
    done = mpirun(2, ["nnabla-torus", "train", "small.yaml"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def export(*arguments, cwd):
    return subprocess.run(
        [BIN / "nnabla-torus", "export", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )


def test_the_exported_network_is_as_good_as_the_log_says(trained):
    newest = max((trained / "runs/small/checkpoints").glob("step-*"))
    for run, file in (("runs/small", "a.nnp"), (newest, "b.nnp")):
        done = export(run, file, cwd=trained)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.strip().endswith(f"{newest.name} -> {file}")
    log = [json.loads(line) for line in (trained / "runs/small/log.jsonl").read_text().splitlines()]
    images, labels = Digits().test_set
    loader = NnpLoader(str(trained / "a.nnp"))
    graph = loader.get_network(loader.get_network_names()[0], batch_size=len(images))
    graph.inputs["images"].d = images
    logits = graph.outputs["logits"]
    logits.forward()
    assert (logits.d.argmax(axis=1) == labels).mean() == pytest.approx(log[-1]["top1"], abs=1e-6)
    nn.clear_parameters()


@pytest.mark.parametrize(
    ("run", "out", "message"),
    [
        ("runs/small", "network.zip", "error: network.zip does not end in .nnp"),
        ("runs/small", "nowhere/network.nnp", "error: nowhere/network.nnp: there is no folder nowhere"),
        ("runs", "network.nnp", "error: runs holds no checkpoint"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(trained, run, out, message):
    done = export(run, out, cwd=trained)
    assert done.returncode == 2
    assert done.stderr.startswith(message) and done.stderr.count("\n") == 1
