"""The keys of a configuration that reads image files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnabla_torus.config import Config, check
from nnabla_torus.config_file import load
from nnabla_torus.course import make_course, stages
from nnabla_torus.failure import UserError

CONFIGS = Path(__file__).parents[1] / "configs"


def configured(data: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **keys: Any) -> Config:
    return check(
        {
            "epochs": 1,
            "output": "runs/x",
            "data": {"name": "imagenet", "root": "/data", **(data or {})},
            "model": {"name": "resnet50", **(model or {})},
            "batch_size": {"global_batch": 8},
            "learning_rate": 0.1,
            "solver": {"name": "sgd"},
            **keys,
        }
    )


def test_defaults() -> None:
    run = configured()
    assert (run.data.train, run.data.val, run.data.val_labels, run.data.index) == ("train", "val", None, None)
    assert (run.data.size, run.data.test_resize, run.data.on_error) == (224, 256, "stop")
    assert run.data.augmentation.random_resized_crop is None and run.data.augmentation.flipping == 0
    assert (run.model.depth, run.model.version, run.model.last_gamma_zero) == (50, "v1.5", False)


def test_an_empty_crop_takes_its_usual_limits() -> None:
    run = configured({"augmentation": {"random_resized_crop": {}, "noise": 4}})
    assert run.data.augmentation.random_resized_crop.area == (0.08, 1.0)
    assert run.data.augmentation.random_resized_crop.aspect == (0.75, 4 / 3)
    assert run.data.augmentation.noise == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data": {"augmentation": {"fliping": 1}}}, "data.augmentation.fliping is not a key; did you mean flipping"),
        ({"data": {"augmentation": {"flipping": 2}}}, "data.augmentation.flipping is 2; it must be less than or equal"),
        ({"data": {"augmentation": {"scaling": [2, 1]}}}, r"data.augmentation.scaling \[2.0, 1.0\] must be \[lowest"),
        ({"data": {"augmentation": {"random_resized_crop": {"area": [1, 2]}}}}, "must be shares of the image"),
        ({"data": {"test_resize": 200}}, "data has test_resize 200 below size 224"),
        ({"data": {"on_error": "skip"}}, "data.on_error is 'skip'; it must be 'stop' or 'replace'"),
        ({"data": {"threads": 0}}, "data.threads is 0"),
        ({"model": {"name": "resnet51"}}, "model.name is 'resnet51'; it must be"),
        ({"model": {"layout": "NHWC"}}, "layout NHWC with device cpu"),
        ({"model": {"name": "alexnet"}, "data": {"size": 64}}, "data.size 64; AlexNet needs at least 67"),
    ],
)
def test_what_is_wrong_is_named(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        configured(**keys)


def test_the_baseline_of_goyal_et_al() -> None:
    run = load(CONFIGS / "imagenet_resnet50.yaml", ["data.root=/data"])
    *course, rest = stages(make_course(run, 1_281_167, 256))
    assert [(stage.global_batch, stage.batch_per_rank) for stage in course] == [(8192, (32, 32))] * 5
    assert sum(stage.steps for stage in course) == 14_075
    assert (rest.steps, rest.global_batch) == (1, 90 * 1_281_167 - 14_075 * 8192)
    assert [stage.learning_rate[1] for stage in course[1:]] == pytest.approx([3.2, 0.32, 0.032, 0.0032])
    assert course[0].learning_rate[0] == pytest.approx(0.1)
    assert [round(stage.epochs[1]) for stage in course] == [5, 30, 60, 80, 90]
    uneven = next(stages(make_course(run, 1_281_167, 7)))
    assert uneven.batch_per_rank == (1170, 1171)


def test_the_synthetic_imagenet() -> None:
    run = load(CONFIGS / "synthetic_imagenet.yaml", [])
    assert (run.device, run.data.size, run.model.name) == ("cpu", 64, "resnet18")


def test_the_digits_are_too_small_for_networks_of_imagenet() -> None:
    with pytest.raises(UserError, match=r"model\.name resnet50 for the digits"):
        check({**configured().model_dump(mode="json"), "data": {"name": "digits"}})
