"""The networks of ImageNet: published sizes, where they halve the image, how they begin, layouts and precisions."""

import importlib.util

import nnabla as nn
import nnabla.functions as F
import numpy as np
import pytest
from nnabla.ext_utils import get_extension_context
from nnabla.utils.nnp_graph import NnpLoader

from nnabla_torus.models.alexnet import AlexNet
from nnabla_torus.models.imagenet_resnet import ImageNetResNet
from nnabla_torus.models.nnp import save_nnp


@pytest.fixture(autouse=True)
def own_parameters():
    before = nn.get_current_context()
    nn.clear_parameters()
    yield
    nn.set_default_context(before)
    nn.clear_parameters()


def resnet(depth, classes=1000, version="v1.5", last_gamma_zero=True, layout="NCHW", seed=0):
    return ImageNetResNet(classes, depth, version, last_gamma_zero, layout, seed)


def alexnet(classes=1000, layout="NCHW"):
    return AlexNet(classes, layout, seed=0)


def count():
    return sum(parameter.size for parameter in nn.get_parameters().values())


def pictures(shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


# As torchvision's documentation lists them, which follow He et al.'s table 1 with 1000 classes.
@pytest.mark.parametrize(
    ("depth", "parameters"),
    [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032), (101, 44_549_160), (152, 60_192_808)],
)
@pytest.mark.parametrize("version", ["v1", "v1.5"])
def test_published_parameter_counts(depth, parameters, version):
    logits = resnet(depth, version=version)(nn.Variable((2, 3, 224, 224)), train=True)
    assert logits.shape == (2, 1000)
    assert count() == parameters


@pytest.mark.parametrize("channels", [3, 4])
def test_channels_last_has_the_same_parameters_padded_or_not(channels):
    logits = resnet(50, layout="NHWC")(nn.Variable((2, 224, 224, channels)), train=True)
    assert logits.shape == (2, 1000)
    assert count() == 25_557_032


def test_alexnet_has_the_published_weights_and_batch_normalisation():
    logits = alexnet()(nn.Variable((2, 3, 227, 227)), train=True)
    weights = 11 * 11 * 3 * 96 + 5 * 5 * 96 * 256 + 9 * (256 * 384 + 384 * 384 + 384 * 256)
    connected = 9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000
    normalised = 2 * (96 + 256 + 384 + 384 + 256 + 256)
    assert logits.shape == (2, 1000)
    assert count() == weights + connected + normalised
    biases = 96 + 256 + 384 + 384 + 256  # which the published network has in place of batch normalisation
    assert weights + connected + biases == 62_378_344


def strides(model):
    """(kernel, stride) of the convolutions that halve the image, in the order in which they run."""
    found = []

    def visit(function):
        if function.name == "Convolution" and tuple(function.info.args["stride"]) == (2, 2):
            found.append(function.inputs[1].shape[2])

    model(nn.Variable((1, 3, 64, 64)), False).visit(visit)
    return sorted(found)


def test_v1_halves_in_the_first_convolution_and_v1_5_in_the_3x3():
    assert strides(resnet(50, version="v1")) == [1, 1, 1, 1, 1, 1, 7]  # with the three shortcuts
    nn.clear_parameters()
    assert strides(resnet(50, version="v1.5")) == [1, 1, 1, 3, 3, 3, 7]


def test_initial_weights_follow_he_by_fan_out_and_do_not_depend_on_the_rank():
    resnet(18, classes=10, seed=3)(nn.Variable((1, 3, 32, 32)), True)
    first = {name: parameter.d.copy() for name, parameter in nn.get_parameters().items()}
    for name, weight in first.items():
        if name.endswith("conv/W"):
            assert weight.std() == pytest.approx(np.sqrt(2 / (weight.shape[0] * weight.shape[2] ** 2)), rel=0.05)
            assert abs(weight.mean()) < 0.05 * weight.std() + 1e-3
    assert first["head/affine/W"].std() == pytest.approx(0.01, rel=0.05)
    nn.clear_parameters()
    resnet(18, classes=10, seed=3)(nn.Variable((7, 3, 64, 64)), False)
    for name, parameter in nn.get_parameters().items():
        np.testing.assert_array_equal(parameter.d, first[name])
    nn.clear_parameters()
    resnet(18, classes=10, seed=4)(nn.Variable((1, 3, 32, 32)), True)
    assert not np.array_equal(nn.get_parameters()["stem/conv/conv/W"].d, first["stem/conv/conv/W"])


@pytest.mark.parametrize(("depth", "blocks"), [(18, 8), (50, 16)])
def test_last_gammas_are_zero_on_request(depth, blocks):
    for requested in (True, False):
        nn.clear_parameters()
        resnet(depth, classes=3, last_gamma_zero=requested)(nn.Variable((1, 3, 32, 32)), True)
        gammas = {name: p.d for name, p in nn.get_parameters().items() if name.endswith("/gamma")}
        last = f"/conv{1 if depth == 18 else 2}/bn/gamma"
        assert sum(name.endswith(last) for name in gammas) == blocks
        for name, gamma in gammas.items():
            assert np.all(gamma == (0 if requested and name.endswith(last) else 1))


def transposing(convolution, pooling):
    """CPU kernels know channels first only: what nnabla computes on a GPU, said with transposes."""

    def first(x):
        return F.transpose(x, (0, 3, 1, 2))

    def last(x):
        return F.transpose(x, (0, 2, 3, 1))

    def convolve(x, weight, bias=None, channel_last=False, **options):
        if not channel_last:
            return convolution(x, weight, bias, **options)
        return last(convolution(first(x), first(weight), bias, **options))

    def pool(x, *arguments, channel_last=False, **options):
        return last(pooling(first(x), *arguments, **options)) if channel_last else pooling(x, *arguments, **options)

    return convolve, pool


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda **layout: resnet(50, classes=5, last_gamma_zero=False, **layout), 64),
        (lambda **layout: alexnet(5, **layout), 67),
    ],
    ids=["resnet", "alexnet"],
)
def test_channels_last_computes_the_same(monkeypatch, make, size):
    convolve, pool = transposing(F.convolution, F.max_pooling)
    monkeypatch.setattr(F, "convolution", convolve)
    monkeypatch.setattr(F, "max_pooling", pool)
    batch = pictures((4, 3, size, size))
    plain = make()(nn.Variable.from_numpy_array(batch), False)
    plain.forward()
    parameters = {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}
    nn.clear_parameters()
    padded = np.concatenate([batch.transpose(0, 2, 3, 1), np.full((4, size, size, 1), 9, np.float32)], axis=3)
    other = make(layout="NHWC")(nn.Variable.from_numpy_array(padded), False)
    for name, parameter in nn.get_parameters(grad_only=False).items():
        value = parameters[name]
        if value.ndim == 4:
            value = value.transpose(0, 2, 3, 1)
        elif name == "hidden0/affine/W":  # the one layer that sees where a pixel lies
            value = value.reshape(256, 1, 1, 4096).transpose(1, 2, 0, 3).reshape(256, 4096)
        parameter.d = value.reshape(parameter.shape)
    other.forward()
    np.testing.assert_allclose(other.d, plain.d, rtol=1e-3, atol=1e-4)


def test_half_precision_computes_what_float_does():
    logits = {}
    for type_config in ("float", "half"):
        nn.set_default_context(get_extension_context("cpu", type_config=type_config))
        nn.clear_parameters()
        # With running statistics: a batch's own differ too much between precisions where a batch is so small.
        output = resnet(18, classes=4)(nn.Variable.from_numpy_array(pictures((1, 3, 32, 32))), False)
        for parameter in nn.get_parameters().values():
            parameter.grad.zero()
        output.forward()
        output.backward()
        logits[type_config] = output.d.copy()
        gradient = nn.get_parameters()["stem/conv/conv/W"].g
        assert output.d.dtype == gradient.dtype == (np.float32 if type_config == "float" else np.float16)
        assert np.all(np.isfinite(gradient)) and np.any(gradient != 0)
    np.testing.assert_allclose(logits["half"], logits["float"], atol=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("nnabla_ext.cudnn") is None, reason="nnabla-ext-cuda120 is not installed")
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("type_config", ["float", "half"])
def test_a_gpu_computes_every_layout_and_precision(layout, type_config):
    batch = pictures((8, 3, 64, 64))
    expected = resnet(50, classes=5)(nn.Variable.from_numpy_array(batch), False)
    expected.forward()
    parameters = {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}
    nn.clear_parameters()
    nn.set_default_context(get_extension_context("cudnn", type_config=type_config))
    padded = np.concatenate([batch.transpose(0, 2, 3, 1), np.zeros((8, 64, 64, 1), np.float32)], axis=3)
    images = nn.Variable.from_numpy_array(batch if layout == "NCHW" else padded)
    logits = resnet(50, classes=5, layout=layout)(images, False)
    for name, parameter in nn.get_parameters(grad_only=False).items():
        value = parameters[name]
        if layout == "NHWC" and value.ndim == 4:
            value = value.transpose(0, 2, 3, 1)
        parameter.d = value.reshape(parameter.shape)
    logits.forward()
    np.testing.assert_allclose(logits.d, expected.d, atol=1e-3 if type_config == "float" else 0.05)


def test_float_trains_on_a_batch():
    images = nn.Variable.from_numpy_array(pictures((4, 3, 64, 64)))
    labels = nn.Variable.from_numpy_array(np.arange(4).reshape(4, 1))
    loss = F.sum(F.softmax_cross_entropy(resnet(18, classes=4)(images, True), labels)) / 4
    for parameter in nn.get_parameters().values():
        parameter.grad.zero()
    loss.forward()
    first = float(loss.d)
    assert first == pytest.approx(np.log(4), rel=0.2)  # the first guess is near chance
    loss.backward()
    for parameter in nn.get_parameters().values():
        parameter.d = parameter.d - 0.05 * parameter.g
    loss.forward()
    assert float(loss.d) < first


def test_an_exported_network_gives_the_same_logits(tmp_path):
    batch = pictures((3, 3, 32, 32))
    network = resnet(18, classes=7, last_gamma_zero=False)
    network(nn.Variable.from_numpy_array(batch), True).forward()  # moves the running statistics
    expected = network(nn.Variable.from_numpy_array(batch), False)
    expected.forward()
    parameters = {name: p.d.copy() for name, p in nn.get_parameters(grad_only=False).items()}
    nn.save_parameters(str(tmp_path / "parameters.h5"))
    nn.clear_parameters()
    save_nnp(tmp_path / "network.nnp", network, (3, 32, 32), parameters)
    assert not nn.get_parameters(grad_only=False)  # whoever exports keeps parameters of its own
    for file in ("network.nnp", "parameters.h5"):
        nn.clear_parameters()
        nn.load_parameters(str(tmp_path / file))
        loaded = nn.get_parameters(grad_only=False)
        assert set(loaded) == set(parameters)
        for name, value in parameters.items():
            np.testing.assert_array_equal(loaded[name].d, value)
    nn.clear_parameters()
    loader = NnpLoader(str(tmp_path / "network.nnp"))
    graph = loader.get_network(loader.get_network_names()[0], batch_size=3)
    graph.inputs["images"].d = batch
    logits = graph.outputs["logits"]
    logits.forward()
    np.testing.assert_allclose(logits.d, expected.d, rtol=1e-5, atol=1e-6)


def test_parameters_of_another_network_are_refused(tmp_path):
    resnet(18, classes=7)(nn.Variable((1, 3, 32, 32)), False)
    parameters = {name: p.d for name, p in nn.get_parameters(grad_only=False).items()}
    message = r"2 parameters differ: head/affine/W is \(512, 5\) in the network, \(512, 7\) here"
    with pytest.raises(ValueError, match=message):
        save_nnp(tmp_path / "network.nnp", resnet(18, classes=5), (3, 32, 32), parameters)
    assert not (tmp_path / "network.nnp").exists()
