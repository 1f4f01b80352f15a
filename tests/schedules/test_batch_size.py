from nnabla_torus.schedules.batch_size import ladder, steps


def test_a_rung_is_taken_by_the_first_step_that_begins_at_its_edge_or_after():
    batch_size = ladder(4, [6, 20], [8, 16])
    assert [batch_size(seen) for seen in (0, 5, 6, 19, 20, 1000)] == [4, 4, 8, 8, 16, 16]


def test_steps_cover_the_stream_and_the_last_takes_what_is_left():
    assert list(steps(ladder(4, [6], [8]), 21)) == [(0, 4), (4, 8), (8, 16), (16, 21)]
    assert list(steps(ladder(5, [], []), 10)) == [(0, 5), (5, 10)]
    assert list(steps(ladder(100, [], []), 7)) == [(0, 7)]
