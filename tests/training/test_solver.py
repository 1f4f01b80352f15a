import nnabla as nn
import numpy as np
import pytest

from nnabla_torus.training.solver import Solver, is_weight, lars, momentum_sgd, nesterov_sgd


def parameter(values):
    variable = nn.Variable((len(values),), need_grad=True)
    variable.d = values
    return variable


def stepped(recipe, values, gradients, rate=0.5, momentum=0.9, name="conv/W"):
    """The parameter after each update."""
    variable = parameter(values)
    solver = Solver({name: variable}, recipe)
    found = []
    for gradient in gradients:
        variable.g = gradient
        solver.update(rate, momentum)
        found.append(variable.d.copy())
    return found


# Rate 0.5, coefficient 0.2, |(3, 4)| = 5, |(0.6, 0.8)| = 1.
@pytest.mark.parametrize(
    ("decay", "weights", "gradient", "expected"),
    [
        # first step: 0.5·0.2·5 / (1 + 0.1·5) = 1/3, times (0.6, 0.8) + 0.1·(3, 4) = (0.9, 1.2)
        (0.1, [3, 4], [0.6, 0.8], [3 - 0.3, 4 - 0.4]),
        # no decay: 0.5·0.2·5 / 1 = 0.5, times (0.6, 0.8)
        (0.0, [3, 4], [0.6, 0.8], [3 - 0.3, 4 - 0.4]),
        # zero weights: the plain rate 0.5
        (0.1, [0, 0], [0.6, 0.8], [-0.3, -0.4]),
        # zero gradient: 0.5·0.2·5 / (0.1·5) = 1, times 0.1·(3, 4)
        (0.1, [3, 4], [0, 0], [3 - 0.3, 4 - 0.4]),
        # zero gradient and no decay: nothing moves
        (0.0, [3, 4], [0, 0], [3, 4]),
        # everything zero
        (0.1, [0, 0], [0, 0], [0, 0]),
    ],
)
def test_lars_first_step_by_hand(decay, weights, gradient, expected):
    (found,) = stepped(lars(decay, coefficient=0.2, eps=1e-6), weights, [gradient])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_lars_second_step_by_hand():
    # |(2.7, 3.6)| = 4.5: 0.5·0.2·4.5 / (1 + 0.45) = 9/29, times (0.6, 0.8) + 0.1·(2.7, 3.6): (0.27, 0.36)
    _, found = stepped(lars(0.1, coefficient=0.2, eps=1e-6), [3, 4], [[0.6, 0.8]] * 2)
    np.testing.assert_allclose(found, [2.7 - 0.9 * 0.3 - 0.27, 3.6 - 0.9 * 0.4 - 0.36], rtol=1e-6)


@pytest.mark.parametrize("name", ["conv/b", "bn/beta", "bn/gamma"])
def test_lars_leaves_the_second_group_undecayed_at_the_plain_rate(name):
    (found,) = stepped(lars(0.1, coefficient=0.2, eps=1e-6), [3, 4], [[0.6, 0.8]], name=name)
    np.testing.assert_allclose(found, [3 - 0.3, 4 - 0.4], rtol=1e-6)


def test_momentum_sgd_decays_weights_only():
    found = stepped(momentum_sgd(0.1), [3, 4], [[1, 2], [1, 2]])
    # v1 = 0.5·(1.3, 2.4), v2 = 0.9·v1 + 0.5·((1, 2) + 0.1·w1)
    np.testing.assert_allclose(found[0], [2.35, 2.8], rtol=1e-6)
    np.testing.assert_allclose(found[1], [2.35 - 0.585 - 0.6175, 2.8 - 1.08 - 1.14], rtol=1e-6)
    np.testing.assert_allclose(stepped(momentum_sgd(0.1), [3, 4], [[1, 2]], name="b")[0], [2.5, 3.0])


def test_nesterov_by_hand():
    found = stepped(nesterov_sgd(0), [1], [[1], [1]])
    # v = 0.5, w - 0.9·0.5 - 0.5; then v = 0.45 + 0.5, w - 0.9·0.95 - 0.5
    np.testing.assert_allclose(np.ravel(found), [0.05, 0.05 - 1.355], rtol=1e-5)


def test_momentum_may_change_and_the_velocity_stays():
    variable = parameter([0])
    solver = Solver({"W": variable}, momentum_sgd(0))
    for momentum, expected in ((0.0, -1), (0.5, -1 - 1.5), (0.0, -2.5 - 1), (0.9, -3.5 - 1.9)):
        variable.g = 1
        solver.update(1.0, momentum)
        np.testing.assert_allclose(variable.d, [expected], rtol=1e-6)


@pytest.mark.parametrize("recipe", [momentum_sgd(0.1), nesterov_sgd(0.1), lars(0.1, 0.2, 1e-6)])
def test_a_solver_goes_on_from_its_state(recipe):
    gradients = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    expected = stepped(recipe, [1, 2, 3], gradients)[-1]
    variable = parameter([1, 2, 3])
    first = Solver({"W": variable}, recipe)
    for gradient in gradients[:2]:
        variable.g = gradient
        first.update(0.5, 0.9)
    second = Solver({"W": variable}, recipe)
    second.restore(first.state())
    for gradient in gradients[2:]:
        variable.g = gradient
        second.update(0.5, 0.9)
    np.testing.assert_array_equal(variable.d, expected)


def test_weights_are_known_by_name():
    assert [is_weight(name) for name in ("W", "stage0/block1/first/conv/W", "affine/b", "bn/gamma", "bn/beta")] == [
        True,
        True,
        False,
        False,
        False,
    ]
