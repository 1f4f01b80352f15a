import pytest

from nnabla_torus.config import check
from nnabla_torus.course import make_course, stages
from nnabla_torus.failure import UserError


def run(**changed):
    return check(
        {
            "epochs": 10,
            "output": "runs/x",
            "data": {"name": "digits"},
            "model": {"name": "resnet"},
            "batch_size": {"global_batch": 10},
            "learning_rate": {"base": 1.0},
            "solver": {"name": "sgd", "momentum": 0.9},
            **changed,
        }
    )


def rates(learning_rate, *epochs):
    course = make_course(run(learning_rate=learning_rate), samples_per_epoch=100, ranks=1)
    return [course.learning_rate(epoch * 100) for epoch in epochs]


def test_a_warm_up_and_pieces_that_follow_each_other():
    learning_rate = {
        "base": 4.0,
        "warm_up": {"epochs": 2, "start": 1.0},
        "decay": [
            {"name": "constant", "until": 4},
            {"name": "polynomial", "end": 2.0, "power": 2, "until": 6},
            {"name": "step", "at": [7], "values": [1.0], "until": 8},
            {"name": "cosine"},
        ],
    }
    assert rates(learning_rate, 0, 1, 2, 3, 4, 5, 6, 6.9, 7, 8, 9, 10) == pytest.approx(
        [1, 2.5, 4, 4, 4, 2 + 2 * 0.25, 2, 2, 1, 1, 0.5, 0]
    )


def test_one_piece_goes_from_the_warm_up_to_the_end():
    learning_rate = {"base": 2.0, "warm_up": {"epochs": 5}, "decay": {"name": "polynomial"}}
    assert rates(learning_rate, 0, 2.5, 5, 7.5, 10) == pytest.approx([0, 1, 2, 1, 0])


def test_points_and_a_plain_number():
    assert rates({"base": 1.0, "decay": {"name": "piecewise", "points": [[0, 1], [4, 3], [10, 0]]}}, 2, 4, 7) == [
        2,
        3,
        1.5,
    ]
    assert rates(0.25, 0, 10) == [0.25, 0.25]


def test_momentum_has_a_schedule_too():
    momentum = {"base": 0.5, "decay": {"name": "polynomial", "end": 0.9}}
    course = make_course(run(solver={"name": "sgd", "momentum": momentum}), 100, 1)
    assert [course.momentum(seen) for seen in (0, 500, 1000)] == pytest.approx([0.5, 0.7, 0.9])


def test_batch_sizes_by_epoch_by_samples_and_per_rank():
    sizes = {
        "batch_per_rank": 4,
        "ladder": [{"epoch": 1.5, "global_batch": 20}, {"seen": 400, "batch_per_rank": 8}],
    }
    course = make_course(run(batch_size=sizes), samples_per_epoch=100, ranks=3)
    assert [course.batch_size(seen) for seen in (0, 149, 150, 399, 400)] == [12, 12, 20, 20, 24]


def test_a_batch_per_rank_that_does_not_fit_says_so():
    with pytest.raises(UserError, match=r"batch_per_rank 4 on 3 ranks is 12 samples, but global_batch is 16"):
        make_course(run(batch_size={"batch_per_rank": 4, "global_batch": 16}), 100, 3)
    assert make_course(run(batch_size={"batch_per_rank": 4, "global_batch": 16}), 100, 4).batch_size(0) == 16


def test_a_ladder_must_ascend():
    sizes = {"global_batch": 8, "ladder": [{"epoch": 3, "global_batch": 9}, {"epoch": 2, "global_batch": 9}]}
    with pytest.raises(UserError, match=r"ladder begins at samples \[300.0, 200.0\]; its entries must ascend"):
        make_course(run(batch_size=sizes), 100, 1)


def test_stages_by_hand():
    """2 epochs of 10 samples: 3 + 3 | the warm-up ends at 6 | 3 + 3 | at 12 the batch is 5: 5 | 3 are left."""
    wanted = run(
        epochs=2,
        batch_size={"global_batch": 3, "ladder": [{"epoch": 1, "global_batch": 5}]},
        learning_rate={"base": 6.0, "warm_up": {"epochs": 0.6}},
    )
    found = list(stages(make_course(wanted, samples_per_epoch=10, ranks=2)))
    assert [(stage.epochs, stage.steps, stage.global_batch, stage.batch_per_rank) for stage in found] == [
        ((0.0, 0.6), 2, 3, (1, 2)),
        ((0.6, 1.2), 2, 3, (1, 2)),
        ((1.2, 1.7), 1, 5, (2, 3)),
        ((1.7, 2.0), 1, 3, (1, 2)),
    ]
    assert [stage.learning_rate for stage in found] == [(0.0, 3.0), (6.0, 6.0), (6.0, 6.0), (6.0, 6.0)]
    assert {stage.momentum for stage in found} == {(0.9, 0.9)}
