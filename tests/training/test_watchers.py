import json
from types import SimpleNamespace

import pytest

from nnabla_torus.failure import UserError
from nnabla_torus.training.watchers import JsonLog, Progress


def test_events_are_lines_as_they_happen_and_json_whatever_the_loss(tmp_path):
    path = tmp_path / "log.jsonl"
    log = JsonLog(path)
    log.on_event(None, "step", {"step": 1, "loss": 0.5})
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [0.5]  # before anything is closed
    log.on_event(None, "step", {"step": 2, "loss": float("nan")})
    JsonLog(path).on_event(None, "step", {"step": 3, "loss": float("inf")})  # a resumed run goes on in the same file
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["step"], line["loss"]) for line in lines] == [
        ("step", 1, 0.5),
        ("step", 2, None),
        ("step", 3, None),
    ]


def test_a_log_that_cannot_be_written(tmp_path):
    with pytest.raises(UserError, match=r"cannot write .*log\.jsonl: .*; give another folder as output="):
        JsonLog(tmp_path / "none" / "log.jsonl")


def test_plain_lines_where_there_is_no_terminal(capsys):
    trainer = SimpleNamespace(
        total=300, samples_per_epoch=100, seen=100, taken=10, epoch=1.0, loss=0.25, batch_size=10, evaluation=None
    )
    progress = Progress()
    progress.before_training(trainer)
    progress.on_event(trainer, "step", {"loss": 0.25, "batch_size": 10, "learning_rate": 0.1})
    progress.on_event(trainer, "batch_size", {"batch_size": 20, "epoch": 1.0})
    progress.on_event(trainer, "evaluation", {"top1": 0.975})
    progress.after_training(trainer)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "batch size 20 from epoch 1.00 on"
    assert second.startswith("epoch  1.00 of 3  loss 0.2500  test accuracy  97.50%  batch 10  ")
