import nnabla as nn
import numpy as np
import pytest

from nnabla_torus.models.resnet import ResNet


def built(images, train=False, **changed):
    """The logits, and the parameters that were made."""
    arguments = {"classes": 10, "blocks": (2, 1), "widths": (4, 8), "batch_normalization": True, "seed": 3, **changed}
    scope = {}
    with nn.parameter_scope("", scope):
        logits = ResNet(**arguments)(nn.Variable.from_numpy_array(images), train)
        logits.forward()
        return logits.d.copy(), {
            name: variable.d.copy() for name, variable in nn.get_parameters(grad_only=False).items()
        }


IMAGES = np.random.default_rng(0).standard_normal((3, 1, 8, 8)).astype(np.float32)


def test_shapes_and_parameters():
    logits, parameters = built(IMAGES)
    assert logits.shape == (3, 10)
    assert parameters["stem/conv/W"].shape == (4, 1, 3, 3)
    assert parameters["stage0/block1/second/conv/W"].shape == (4, 4, 3, 3)
    assert parameters["stage1/block0/shortcut/conv/W"].shape == (8, 4, 1, 1)
    assert parameters["head/affine/W"].shape == (8, 10)
    assert "stage0/block0/shortcut/conv/W" not in parameters  # nothing changes shape there
    assert not [name for name in parameters if name.endswith("conv/b")]  # batch normalisation has the bias


@pytest.mark.parametrize("normalized", [True, False])
def test_every_block_begins_as_the_identity(normalized):
    _, parameters = built(IMAGES, batch_normalization=normalized)
    zero = "second/bn/gamma" if normalized else "second/conv/W"
    last = [values for name, values in parameters.items() if name.endswith(zero)]
    assert len(last) == 3 and not any(values.any() for values in last)


def test_the_seed_alone_makes_the_parameters():
    first, second, other = (built(IMAGES, seed=seed)[1] for seed in (1, 1, 2))
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
    assert (first["stem/conv/W"] != other["stem/conv/W"]).any()


def test_without_batch_normalization_an_image_is_alone():
    together, parameters = built(IMAGES, train=True, batch_normalization=False)
    alone = np.concatenate([built(image[None], train=True, batch_normalization=False)[0] for image in IMAGES])
    np.testing.assert_allclose(together, alone, rtol=1e-5)
    assert not [name for name in parameters if "/bn/" in name]
