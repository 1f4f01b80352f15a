import re

import pytest

from nnabla_torus.config_file import load
from nnabla_torus.failure import UserError

GOOD = """\
epochs: 3
data: {name: digits}
model: {name: resnet}
batch_size: {global_batch: 64, ladder: [{epoch: 1, global_batch: 128}]}
learning_rate: {base: 1e-1, warm_up: {epochs: 1}, decay: {name: cosine}}
solver: {name: sgd, momentum: 0.9, weight_decay: 1e-4}
"""


def loaded(tmp_path, text=GOOD, *overrides):
    path = tmp_path / "small.yaml"
    path.write_text(text)
    return load(path, overrides)


def test_a_configuration_with_its_defaults(tmp_path):
    run = loaded(tmp_path)
    assert (run.epochs, run.seed, run.device, run.grid, run.algorithm) == (3, 0, "cpu", "auto", "torus")
    assert run.output == "runs/small"
    assert run.learning_rate.base == 0.1 and run.learning_rate.warm_up.start == 0
    assert [piece.name for piece in run.learning_rate.decay] == ["cosine"]
    assert run.solver.momentum.base == 0.9 and run.solver.weight_decay == 1e-4
    assert [rung.global_batch for rung in run.batch_size.ladder] == [128]


def test_overrides_reach_every_depth(tmp_path):
    run = loaded(
        tmp_path,
        GOOD,
        "epochs=7",
        "output=elsewhere",
        "solver.momentum=0.5",
        "batch_size.ladder.0.global_batch=96",
        "model.widths=[4, 8, 8]",
        "evaluation.every=0.5",
        "learning_rate={base: 2e-1}",
    )
    assert (run.epochs, run.output, run.solver.momentum.base) == (7, "elsewhere", 0.5)
    assert run.batch_size.ladder[0].global_batch == 96
    assert run.model.widths == (4, 8, 8) and run.evaluation.every == 0.5
    assert run.learning_rate.base == 0.2 and run.learning_rate.decay == ()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epoch=3", "epoch is not a key; did you mean epochs?"),
        ("solver.momentun=0.9", "solver.momentun is not a key; did you mean momentum?"),
        ("batch_size.ladder.0.epohc=2", "batch_size.ladder.0.epohc is not a key; did you mean epoch?"),
        ("zzz=3", r"zzz is not a key; the keys are algorithm, batch_size, checkpoint, "),
        ("epochs=three", "epochs is 'three'; it must be a whole number"),
        ("epochs=2.5", "epochs is 2.5; it must be a whole number"),
        ("epochs=true", "epochs is True; it must be a whole number"),
        ("epochs=0", "epochs is 0; it must be greater than 0"),
        ("seed=-1", "seed is -1; it must be greater than or equal to 0"),
        ("device=tpu", "device is 'tpu'; it must be 'cpu' or 'cuda'"),
        ("solver.name=adam", "solver.name is 'adam'; it must be 'sgd' or 'nesterov' or 'lars'"),
        ("model=resnet", "model is 'resnet'; it must be a section of keys and values"),
        ("learning_rate.decay.name=linear", "learning_rate.decay.name is 'linear'; it must be 'constant' or "),
        ("learning_rate.base=.inf", "learning_rate.base is inf; it must be a finite number"),
        ("solver.momentum=1.5", "solver has momentum 1.5; it must be below 1"),
        ("model.widths=[16]", "model has 3 blocks but 1 widths; give one of each for every stage"),
        ("batch_size={}", "batch_size has no size; give global_batch or batch_per_rank"),
        ("batch_size.ladder.0.seen=9", "batch_size.ladder.0 needs epoch or seen (samples), one of them"),
        ("epochs", "'epochs' is not an override; write key=value"),
        ("batch_size.ladder.1.epoch=2", "batch_size.ladder.1 is not there; the list has entries 0 to 0"),
        ("epochs.x=2", "epochs is 3, which has no keys"),
        ("epochs=[1", "epochs=[1, line 1: "),
    ],
)
def test_every_mistake_is_one_line_with_key_value_and_remedy(tmp_path, override, message):
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        loaded(tmp_path, GOOD, override)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("epochs: 3\n", ""), "epochs is missing; add it"),
        (
            GOOD.replace("name: sgd, ", ""),
            "solver is {'momentum': 0.9, 'weight_decay': 0.0001}; it must be a section with",
        ),
        (GOOD + "epochs: 4\n", "key 'epochs' is there twice"),
        (GOOD + "1: 4\n", "key 1 is not text"),
        ("just words", "holds 'just words'; a configuration is keys and values"),
        ("a: [", "line 1: "),
        ("", "holds None; a configuration is keys and values"),
    ],
)
def test_files_that_are_wrong(tmp_path, text, message):
    with pytest.raises(UserError, match=re.escape(message)) as raised:
        loaded(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the configuration .*none.yaml: No such file or directory"):
        load(tmp_path / "none.yaml")


def test_the_configurations_that_come_along_are_right():
    from tests.mpi.launch import PROGRAMS

    configs = list((PROGRAMS.parents[2] / "configs").glob("*.yaml"))
    assert configs
    for path in configs:
        load(path)
