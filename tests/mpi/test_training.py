import json
import time

import numpy as np
import pytest

from tests.mpi.launch import PROGRAMS, check, mpirun

# Losses are compared between sums in another order, over a few steps of float32.
ROUNDING = {"rtol": 1e-4, "atol": 1e-6}


def outcome(ranks, scenario, *arguments):
    return json.loads(check(ranks, "training.py", scenario, *map(str, arguments)))


@pytest.mark.parametrize("ranks", [3, 4])
def test_parameters_are_equal_on_all_ranks_and_over_runs(ranks):
    first, second = (outcome(ranks, "equal_on_all_ranks") for _ in range(2))
    assert first == second


def test_the_same_batches_give_the_same_losses_on_any_number_of_ranks():
    expected = outcome(1, "bare_loop")["losses"]
    for ranks in (1, 2, 3, 4):
        np.testing.assert_allclose(outcome(ranks, "losses")["losses"], expected, **ROUNDING)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_resumed_run_ends_bitwise_where_an_uninterrupted_one_ends(ranks, tmp_path):
    outcome(ranks, "resume", tmp_path)


def test_a_run_on_two_ranks_goes_on_with_three(tmp_path):
    expected = outcome(2, "write", tmp_path)["losses"]
    np.testing.assert_allclose(outcome(3, "go_on", tmp_path)["losses"], expected[15:], **ROUNDING)


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_evaluation_is_exact(ranks):
    outcome(ranks, "evaluate")


def test_a_rank_that_fails_in_training_ends_all():
    begin = time.monotonic()
    done = mpirun(3, [PROGRAMS / "training.py", "broken"], timeout=60)
    assert time.monotonic() - begin < 20  # start included; the promise is 10 s from the failure on
    assert done.returncode == 1
    assert "rank 2 of 3 failed:\nTraceback" in done.stderr and "broken in step 3" in done.stderr
