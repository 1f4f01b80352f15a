"""Gradients of a network with shared and unused parameters, against nnabla's own, summed by numpy."""

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import numpy as np
from mpi4py import MPI

from nnabla_torus.communicators import create_communicator
from nnabla_torus.gradients import GradientExchange

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()


def network():
    """A loss whose "shared" is used twice, and parameters of which "unused" is in no graph."""
    x = nn.Variable.from_numpy_array(np.random.default_rng(RANK).standard_normal((4, 6)).astype("float32"))
    hidden = F.tanh(PF.affine(x, 6, name="shared"))
    hidden = F.tanh(PF.affine(hidden, 6, name="shared"))
    loss = F.sum(PF.affine(hidden, 3, name="last") ** 2)
    with nn.parameter_scope("unused"):
        PF.affine(x, 5)
    for name, parameter in nn.get_parameters().items():
        seed = sum(name.encode())
        parameter.d = np.random.default_rng(seed).standard_normal(parameter.shape)
    return loss


def plain_gradients(loss):
    for parameter in nn.get_parameters().values():
        parameter.g = 0
    loss.forward()
    loss.backward()
    return {name: parameter.g.copy() for name, parameter in nn.get_parameters().items()}


def check(loss, missing):
    own = plain_gradients(loss)
    comm = create_communicator(nn.get_current_context())
    exchange = GradientExchange(comm, nn.get_parameters())
    contributing = [rank for rank in range(SIZE) if rank not in missing]
    everybodys = WORLD.allgather(own)
    for _ in range(3):
        loss.forward()
        exchange.backward(None if RANK in missing else loss)
        for name, parameter in nn.get_parameters().items():
            expected = sum(everybodys[rank][name].astype("float64") for rank in contributing)
            np.testing.assert_allclose(parameter.g, expected, rtol=1e-5, atol=1e-5, err_msg=name)
            assert len(set(WORLD.allgather(parameter.g.tobytes()))) == 1, f"{name} differs between ranks"
    assert (
        exchange.algorithms == ["torus (shared_memory, library)"]
        and len(set(WORLD.allgather(tuple(exchange.placements)))) == 1
    )
    return exchange


def main():
    nn.logger.setLevel("WARNING")
    loss = network()
    exchange = check(loss, missing=set())
    order = [place.parameter for place in exchange.placements]
    assert order[:2] == ["last/affine/W", "last/affine/b"] and order[2:4] == ["shared/affine/W", "shared/affine/b"]
    assert {*order[4:]} == {"unused/affine/W", "unused/affine/b"}
    ends = [place.stop for place in exchange.placements]
    assert [place.start for place in exchange.placements] == [0, *ends[:-1]]
    if SIZE > 1:
        check(loss, missing={0})  # the order is then learned on another rank
        check(loss, missing=set(range(1, SIZE)))
    nobody = GradientExchange(create_communicator(nn.get_current_context()), nn.get_parameters())
    try:
        nobody.backward(None)
    except ValueError as error:
        assert "no rank has a loss" in str(error)
    else:
        raise AssertionError("a first backward without any loss was taken")


main()
