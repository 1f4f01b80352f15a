import json

import pytest

from nnabla_torus.failure import UserError
from nnabla_torus.report import plot_run
from nnabla_torus.run_folder import RunFolder, read_log


def line(event, step, **fields):
    return json.dumps({"event": event, "step": step, **fields}) + "\n"


def test_what_a_resumed_run_took_again_is_there_once(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(
        line("start", 0)
        + "".join(line("step", step, loss=1) for step in (1, 2, 3))
        + '{"event": "ste'  # the process was killed here
        + "\n"
        + line("start", 2)
        + line("step", 3, loss=2)
        + line("end", 3)
    )
    found = [(event["event"], event["step"], event.get("loss")) for event in read_log(path)]
    assert found == [
        ("start", 0, None),
        ("step", 1, 1),
        ("step", 2, 1),
        ("start", 2, None),
        ("step", 3, 2),
        ("end", 3, None),
    ]


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the log .*log\.jsonl"):
        read_log(tmp_path / "log.jsonl")


def test_an_earlier_run_is_set_aside_and_nothing_else(tmp_path):
    folder = RunFolder(tmp_path)
    folder.make()
    assert folder.set_aside() is None
    (tmp_path / "notes.txt").write_text("mine")
    for number in (1, 2):
        folder.log.write_text(f"run {number}")
        folder.checkpoints.mkdir()
        earlier = folder.set_aside()
        assert earlier == tmp_path / f"earlier-{number}"
        assert (earlier / "log.jsonl").read_text() == f"run {number}" and (earlier / "checkpoints").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier-1", "earlier-2", "notes.txt"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make the folder .*file: .*; give another output="):
        RunFolder(tmp_path / "file").make()


def test_a_run_is_plotted_whatever_its_losses(tmp_path):
    folder = RunFolder(tmp_path)
    folder.log.write_text(
        line("start", 0, epoch=0.0)
        + line("step", 1, epoch=0.5, loss=None, batch_size=8, learning_rate=0.0)
        + line("step", 2, epoch=1.0, loss=0.5, batch_size=16, learning_rate=0.1)
    )
    assert plot_run(folder) == folder.plots
    assert folder.plots.read_bytes().startswith(b"\x89PNG")
