"""The update of parameters: nnabla's solvers over two groups of them.

    weights                              decayed, and under LARS each at a rate of its own
    biases, batch normalisation's two    neither decayed nor rescaled

You et al. 2017 and Goyal et al. 2017 leave the second group alone, since it is small and its norms say little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import nnabla as nn
import nnabla.solvers as S
import numpy as np

# The last part of the name of a parameter that is no weight.
UNDECAYED = ("b", "beta", "gamma")

# Makes one of nnabla's solvers for a momentum; its rate is set before every update.
MakeSolver = Callable[[float], S.Solver]


class Recipe(NamedTuple):
    """What updates weights, what updates the other parameters, and the decay of weights."""

    name: str
    weights: MakeSolver
    others: MakeSolver
    weight_decay: float


def momentum_sgd(weight_decay: float) -> Recipe:
    """v <- momentum·v + rate·g; w <- w - v."""

    def make(momentum: float) -> S.Solver:
        return S.Momentum(lr=0, momentum=momentum)

    return Recipe("sgd", make, make, weight_decay)


def nesterov_sgd(weight_decay: float) -> Recipe:
    """v <- momentum·v + rate·g; w <- w - momentum·v - rate·g (Nesterov's, as Sutskever et al. 2013 write it)."""

    def make(momentum: float) -> S.Solver:
        return S.Nesterov(lr=0, momentum=momentum)

    return Recipe("nesterov", make, make, weight_decay)


def lars(weight_decay: float, coefficient: float, eps: float) -> Recipe:
    """Momentum at rate·coefficient·|w| / (|g| + decay·|w|) for each weight (You et al. 2017), rate where |w| < eps."""

    def make(momentum: float) -> S.Solver:
        return S.Lars(lr=0, momentum=momentum, coefficient=coefficient, eps=eps)

    return Recipe("lars", make, momentum_sgd(0).others, weight_decay)


class Solver:
    """Updates parameters by their gradients, as a recipe says."""

    def __init__(self, parameters: Mapping[str, nn.Variable], recipe: Recipe) -> None:
        self.name = recipe.name
        weights = {name: parameter for name, parameter in parameters.items() if is_weight(name)}
        others = {name: parameter for name, parameter in parameters.items() if not is_weight(name)}
        self._groups = [_Group(weights, recipe.weights, recipe.weight_decay), _Group(others, recipe.others, 0.0)]

    def update(self, learning_rate: float, momentum: float) -> None:
        """Update every parameter."""
        for group in self._groups:
            group.update(learning_rate, momentum)

    def state(self) -> dict[str, np.ndarray]:
        """Return copies of all that the solvers remember, by the names of the parameter and of what it is."""
        return {name: array for group in self._groups for name, array in group.state().items()}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` returned; raises KeyError when it is another solver's or of other parameters."""
        for group in self._groups:
            group.restore(state)


def is_weight(name: str) -> bool:
    """Tell by its name whether a parameter is a weight: not a bias, and not batch normalisation's."""
    return name.rpartition("/")[2] not in UNDECAYED


class _Group:
    """Some parameters and the nnabla solver that updates them.

    nnabla's solvers take their momentum when they are made: for another one, one is made around the same state.
    """

    def __init__(self, parameters: Mapping[str, nn.Variable], make: MakeSolver, weight_decay: float) -> None:
        self._parameters = dict(parameters)
        self._make = make
        self._weight_decay = weight_decay
        self._momentum = 0.0
        self._solver = self._made()

    def update(self, learning_rate: float, momentum: float) -> None:
        if momentum != self._momentum:
            states = self._solver.get_states()
            self._momentum = momentum
            self._solver = self._made()
            self._solver.set_states(states)
        self._solver.set_learning_rate(learning_rate)
        if self._weight_decay:
            self._solver.weight_decay(self._weight_decay)
        self._solver.update()

    def state(self) -> dict[str, np.ndarray]:
        arrays = {}
        for parameter, state in self._solver.get_states().items():
            arrays[f"{parameter}/t"] = np.array(state.t, np.uint32)
            for name, variable in state.pstate.items():
                arrays[f"{parameter}/{name}"] = variable.d.copy()
        return arrays

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        states = self._solver.get_states()
        for parameter, own in states.items():
            own.t = int(state[f"{parameter}/t"])
            for name, variable in own.pstate.items():
                variable.d = state[f"{parameter}/{name}"]
        self._solver.set_states(states)

    def _made(self) -> S.Solver:
        solver = self._make(self._momentum)
        solver.set_parameters(self._parameters)
        return solver
