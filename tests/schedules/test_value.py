import math

import pytest

from nnabla_torus.schedules.value import composed, constant, cosine, linear, piecewise, polynomial, step, warm_up


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (constant(0.3), {0: 0.3, 10**9: 0.3}),
        (linear(100, 200, 1.0, 3.0), {0: 1.0, 100: 1.0, 125: 1.5, 200: 3.0, 500: 3.0}),
        (polynomial(0, 100, 8.0, 0.0, 3), {0: 8.0, 50: 1.0, 75: 0.125, 100: 0.0, 101: 0.0}),
        (polynomial(100, 300, 5.0, 1.0, 2), {0: 5.0, 200: 2.0, 300: 1.0}),
        (cosine(0, 90, 4.0, 0.0), {0: 4.0, 30: 3.0, 45: 2.0, 60: 1.0, 90: 0.0, 99: 0.0}),
        (step(1.0, [30, 60], [0.1, 0.01]), {0: 1.0, 29: 1.0, 30: 0.1, 59: 0.1, 60: 0.01, 1000: 0.01}),
        (step(1.0, [], []), {0: 1.0, 7: 1.0}),
        (piecewise([(10, 1.0), (20, 3.0), (40, 0.0)]), {0: 1.0, 10: 1.0, 15: 2.0, 20: 3.0, 30: 1.5, 40: 0.0, 50: 0.0}),
        (warm_up(50, 0.1, constant(1.1)), {0: 0.1, 25: 0.6, 50: 1.1, 60: 1.1}),
        (warm_up(50, 0.0, linear(0, 100, 4.0, 0.0)), {0: 0.0, 25: 1.0, 50: 2.0, 75: 1.0}),
        (warm_up(0, 0.0, constant(2.0)), {0: 2.0}),
        (composed([constant(1), linear(10, 20, 1, 0), constant(7)], [10, 20]), {9: 1, 10: 1, 15: 0.5, 20: 7}),
    ],
)
def test_hand_worked_values(schedule, expected):
    assert {seen: schedule(seen) for seen in expected} == pytest.approx(expected)


def test_goyal_in_one_hour():
    """0.1·B/256 with B = 8192, from 0.1 over 5 epochs, divided by 10 at 30, 60 and 80; published.md."""
    epoch = 1_281_167
    rate = warm_up(5 * epoch, 0.1, step(3.2, [30 * epoch, 60 * epoch, 80 * epoch], [0.32, 0.032, 0.0032]))
    assert [rate(e * epoch) for e in (0, 2.5, 5, 29.9, 30, 60, 85)] == pytest.approx(
        [0.1, 1.65, 3.2, 3.2, 0.32, 0.032, 0.0032]
    )


def test_cosine_is_smooth_at_both_ends():
    rate = cosine(0, 1000, 1.0, 0.0)
    assert 1 - rate(1) == pytest.approx((math.pi / 1000) ** 2 / 4, rel=1e-3) and rate(999) == pytest.approx(1 - rate(1))
