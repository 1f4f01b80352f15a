import pytest

from tests.mpi.launch import check


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_nnablas_interface(ranks):
    check(ranks, "communicator.py")


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_gradients_are_summed_in_flat_buffers(ranks):
    check(ranks, "gradients.py")
