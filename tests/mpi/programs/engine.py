"""The engine without nnabla: numpy arrays, the buffer protocol, DLPack, choices by size. Run on 1 or more ranks."""

import array
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

from nnabla_torus.collectives.memory import Memory
from nnabla_torus.engine import Engine, flat_view
from nnabla_torus.failure import ending_all_ranks

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()


class ShowsDlpack:
    """What a framework's CPU tensor shows; its values are reachable only through DLPack."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **keywords):
        return self.values.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


def data(rank, count):
    return ((np.arange(count) * 3 + rank * 5) % 17).astype("float32")


def refuses(message, engine, given):
    try:
        engine.all_reduce(given)
    except ValueError as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"{given!r} was taken")


def sums():
    for algorithm in ("torus", "ring", "auto", "hybrid", "native"):
        engine = Engine(WORLD, algorithm)
        expected = sum(data(rank, 6) for rank in range(SIZE))
        matrix = data(RANK, 6).reshape(2, 3)
        engine.all_reduce(matrix)
        np.testing.assert_array_equal(matrix, expected.reshape(2, 3))
        buffer = array.array("f", data(RANK, 6))
        engine.all_reduce(buffer)
        np.testing.assert_array_equal(np.array(buffer), expected)
        tensor = ShowsDlpack(data(RANK, 6).reshape(3, 2))
        engine.all_reduce(tensor)
        np.testing.assert_array_equal(tensor.values, expected.reshape(3, 2))
        if SIZE > 1:
            refuses("contiguous", engine, np.zeros((4, 4), "float32")[:, ::2])
            frozen = np.zeros(4, "float32")
            frozen.flags.writeable = False
            refuses("writable", engine, frozen)
        memory = Memory(4096)
        engine.share(memory)
        shared = memory.array[256:280].view("float32")
        start = engine.prepare(shared)
        shared[:] = data(RANK, 6)
        start()
        np.testing.assert_array_equal(shared, expected)
        large = data(RANK, 300_000)  # the window grows, and what was prepared in the smaller one still works
        small = data(RANK, 100)
        start = engine.prepare(small)
        engine.all_reduce(large)
        np.testing.assert_array_equal(large, sum(data(rank, 300_000) for rank in range(SIZE)))
        start()
        np.testing.assert_array_equal(small, sum(data(rank, 100) for rank in range(SIZE)))
        engine.close()
    view = flat_view(ShowsDlpack(data(RANK, 4)))
    view[0] = 7  # the memory outlives the object that showed it
    assert view.flags.writeable and view[0] == 7 and view.shape == (4,)


def choice(table):
    told = str(Engine(WORLD, "auto", tuning=Path(table)).choose(4096))
    if RANK == 0:
        print(told)


with ending_all_ranks():
    choice(sys.argv[2]) if sys.argv[1:2] == ["choice"] else sums()
