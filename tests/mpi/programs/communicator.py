"""nnabla's communicator interface on these ranks, against numpy; run on 1 or more ranks."""

import nnabla as nn
import numpy as np
from mpi4py import MPI

from nnabla_torus.communicators import create_communicator

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.Get_rank(), WORLD.Get_size()


def data(rank, shape, dtype="float32"):
    return ((np.arange(np.prod(shape, dtype=int)).reshape(shape) * 3 + rank * 5) % 17 - 4).astype(dtype)


def array(values):
    made = nn.NdArray(values.shape)
    made.cast(values.dtype)[...] = values
    return made


def total(shape, ranks, dtype="float32"):
    return sum(data(rank, shape, "float64") for rank in ranks).astype(dtype)


def raises(kind, text, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except kind as error:
        assert text in str(error) and "\n" not in str(error), str(error)
        return
    raise AssertionError(f"{call.__name__}{arguments} did not raise {kind.__name__}: {text}")


def check_all_reduce(comm):
    shapes = [(2, 3), (5,), (1,), (SIZE + 1, 7)]
    for inplace in (False, True):
        for division in (False, True):
            for dtype in ("float32", "float16"):
                arrays = [array(data(RANK, shape, dtype)) for shape in shapes]
                pointers = [each.data.ctypes.data for each in arrays]
                comm.all_reduce(arrays, division=division, inplace=inplace)
                for each, shape, pointer in zip(arrays, shapes, pointers):
                    expected = total(shape, range(SIZE)) / (SIZE if division else 1)
                    np.testing.assert_array_equal(each.data, expected.astype(dtype))
                    assert each.dtype == dtype and each.data.ctypes.data == pointer
    single = array(data(RANK, (4,)))
    comm.all_reduce(single)
    np.testing.assert_array_equal(single.data, total((4,), range(SIZE)))
    mixed = [array(data(RANK, (3,), "float16")), array(data(RANK, (3,), "float32"))]
    comm.all_reduce(mixed)
    for each, dtype in zip(mixed, ("float16", "float32")):
        np.testing.assert_array_equal(each.data, total((3,), range(SIZE), dtype))
    comm.all_reduce([])


def check_zeroing(comm):
    """As nnabla's: arrays that nobody wrote since zero() are left alone, one written anywhere is summed."""
    arrays = [array(data(RANK, (3,))), array(data(RANK, (4,)))]
    for each in arrays:
        each.zero()
    comm.all_reduce(arrays)
    assert all(each.zeroing for each in arrays)
    if RANK == SIZE - 1:
        arrays[1].data[...] = 2
    comm.all_reduce(arrays)
    assert arrays[0].zeroing and not arrays[1].zeroing
    np.testing.assert_array_equal(arrays[1].data, np.full(4, 2, "float32"))


def check_rooted(comm):
    for root in range(SIZE):
        for inplace in (False, True):
            arrays = [array(data(RANK, (2, 2))), array(data(RANK, (3,)))]
            comm.reduce(arrays, root, division=True, inplace=inplace)
            for each, shape in zip(arrays, [(2, 2), (3,)]):
                expected = total(shape, range(SIZE)) / np.float32(SIZE) if root == RANK else data(RANK, shape)
                np.testing.assert_array_equal(each.data, expected)
            arrays = [array(data(RANK, (2, 2))), array(data(RANK, (3,)))]
            comm.bcast(arrays, root, inplace=inplace)
            for each, shape in zip(arrays, [(2, 2), (3,)]):
                np.testing.assert_array_equal(each.data, data(root, shape))


def check_scattered(comm):
    for flat in (False, True):
        whole = [nn.NdArray((SIZE * 6,))] if flat else [nn.NdArray((2, 3)) for _ in range(SIZE)]
        comm.all_gather(array(data(RANK, (2, 3))), whole)
        gathered = np.concatenate([each.data.reshape(-1) for each in whole])
        np.testing.assert_array_equal(gathered, np.concatenate([data(rank, (6,)) for rank in range(SIZE)]))
        pieces = data(RANK, (SIZE, 6))
        whole = [array(pieces.reshape(-1))] if flat else [array(piece.reshape(2, 3)) for piece in pieces]
        own = nn.NdArray((2, 3))
        comm.reduce_scatter(whole, own, division=True)
        np.testing.assert_array_equal(own.data.reshape(-1), total((SIZE, 6), range(SIZE))[RANK] / np.float32(SIZE))
    raises(ValueError, "all_gather: the list holds", comm.all_gather, nn.NdArray((2,)), [nn.NdArray((2 * SIZE + 1,))])
    raises(ValueError, "reduce_scatter: the list holds", comm.reduce_scatter, [nn.NdArray((SIZE,))], nn.NdArray((3,)))
    half = array(np.zeros(2, "float16"))
    raises(ValueError, "float16 and float32", comm.all_gather, half, [nn.NdArray((2 * SIZE,))])


def check_groups(comm):
    assert comm.list_groups() == {"world": list(range(SIZE))}
    backwards = list(range(SIZE))[::-1]
    assert comm.new_group(("backwards", backwards)) == "backwards"
    some = [rank for rank in (3, 0, 2) if rank < SIZE]  # in this order, so roots count within it
    comm.new_group(("some", some))
    assert comm.find_group("some") == some and comm.find_group("none") == []
    assert comm.list_groups() == {"world": list(range(SIZE)), "backwards": backwards, "some": some}
    copied = array(data(RANK, (3,)))
    comm.bcast(copied, 0, group="backwards")
    np.testing.assert_array_equal(copied.data, data(SIZE - 1, (3,)))
    if RANK in some:
        summed = array(data(RANK, (3,)))
        comm.all_reduce(summed, group="some")
        np.testing.assert_array_equal(summed.data, total((3,), some))
        copied = array(data(RANK, (3,)))
        comm.bcast(copied, len(some) - 1, group="some")
        np.testing.assert_array_equal(copied.data, data(some[-1], (3,)))
        summed = array(data(RANK, (3,)))
        comm.reduce(summed, 0, group="some")
        np.testing.assert_array_equal(summed.data, total((3,), some) if some[0] == RANK else data(RANK, (3,)))
        gathered = nn.NdArray((3 * len(some),))
        comm.all_gather(array(data(RANK, (3,))), [gathered], group="some")
        np.testing.assert_array_equal(gathered.data, np.concatenate([data(rank, (3,)) for rank in some]))
        raises(ValueError, f"root {len(some)} is not in group 'some'", comm.bcast, copied, len(some), group="some")
    else:
        raises(ValueError, f"rank {RANK} is not in group 'some'", comm.all_reduce, copied, group="some")
    raises(ValueError, "group 'none' does not exist", comm.all_reduce, copied, group="none")
    raises(ValueError, "group 'some' exists already", comm.new_group, ("some", [0]))
    raises(ValueError, "group 'far' has ranks", comm.new_group, ("far", [SIZE]))
    raises(ValueError, "group 'twice' has ranks", comm.new_group, ("twice", [0, 0]))
    raises(ValueError, "group 'empty' has ranks", comm.new_group, ("empty", []))


def check_differences(comm):
    """What differs between ranks is one error on all of them, and the communicator works afterwards."""
    if SIZE == 1:
        return
    odd = int(RANK == SIZE - 1)
    one = array(data(RANK, (3,)))
    raises(ValueError, "members differ", comm.all_reduce, [nn.NdArray((3 + odd,))])
    raises(ValueError, "members differ", comm.all_reduce, [array(np.zeros(3, ["float32", "float16"][odd]))])
    raises(ValueError, "members differ", comm.all_reduce, [one] * (1 + odd))
    raises(ValueError, "members differ", comm.all_reduce, one, division=bool(odd))
    raises(ValueError, "members differ", comm.bcast, one, odd)
    raises(ValueError, "members differ", comm.reduce, one, 0, inplace=bool(odd))
    raises(ValueError, "members differ", comm.new_group, (f"group{odd}", [0]))
    raises(ValueError, "members differ", (comm.bcast if odd else comm.reduce), one, 0)
    raises(ValueError, "members differ", comm.prepare, nn.NdArray((3 + odd,)))
    np.testing.assert_array_equal(one.data, data(RANK, (3,)))
    comm.all_reduce(one)
    np.testing.assert_array_equal(one.data, total((3,), range(SIZE)))


def check_parameters(comm):
    """The older interface: parameters are added, `allreduce` sums their gradients."""
    parameter = nn.Variable((2, 2), need_grad=True)
    parameter.g = data(RANK, (2, 2))
    comm.add_context_and_parameters((nn.Context(), {"w": parameter}))
    comm.init()
    comm.allreduce(division=True)
    np.testing.assert_array_equal(parameter.g, total((2, 2), range(SIZE)) / np.float32(SIZE))
    comm.clear_context_parameters()
    comm.allreduce()
    np.testing.assert_array_equal(parameter.g, total((2, 2), range(SIZE)) / np.float32(SIZE))
    raises(NotImplementedError, "GradientExchange", comm.all_reduce_callback, [parameter.grad], 1024)


def main():
    nn.logger.setLevel("WARNING")
    for algorithm in ("torus", "ring", "hierarchical", "native"):
        comm = create_communicator(nn.Context(), algorithm=algorithm)
        assert (comm.rank, comm.size, comm.local_rank, comm.algorithm) == (RANK, SIZE, RANK, algorithm)
        assert comm.grid.size == SIZE
        for check in (
            check_all_reduce,
            check_zeroing,
            check_rooted,
            check_scattered,
            check_groups,
            check_differences,
            check_parameters,
        ):
            check(comm)
            comm.barrier()
    cuda = nn.Context(backend=["cuda:float"])
    raises(Exception, "is not on the CPU", create_communicator, cuda)
    raises(Exception, f"but there are {SIZE}", create_communicator, nn.Context(), grid=f"2x{SIZE}")


main()
