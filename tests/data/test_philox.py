from __future__ import annotations

import numpy as np
import pytest

from nnabla_torus.data.philox import philox, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [  # known answers published with Random123, the authors' library (kat_vectors, philox4x32 10)
        ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (0xFFFFFFFF, 0xFFFFFFFF), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter: list[int], key: tuple[int, int], words: list[int]) -> None:
    assert philox(np.array(counter, np.uint64)[:, None], key)[:, 0].tolist() == words


def test_a_sample_draws_the_same_in_any_company() -> None:
    together = uniforms(7, np.array([0, 0, 3]), np.array([5, 9, 5]), 6)
    alone = uniforms(7, np.array([3]), np.array([5]), 6)
    assert together.shape == (3, 6)
    assert np.array_equal(together[2:], alone)
    assert np.array_equal(uniforms(7, np.array([3]), np.array([5]), 2), alone[:, :2])


def test_seed_epoch_and_sample_each_matter() -> None:
    def draw(seed: int, epoch: int, sample: int) -> float:
        return float(uniforms(seed, np.array([epoch]), np.array([sample]), 1)[0, 0])

    assert (
        len({draw(0, 0, 0), draw(1, 0, 0), draw(1 << 32, 0, 0), draw(0, 1, 0), draw(0, 0, 1), draw(0, 0, 1 << 32)}) == 6
    )


def test_draws_are_uniform() -> None:
    drawn = uniforms(1, np.zeros(20_000, np.int64), np.arange(20_000), 5)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert np.abs(drawn.mean(axis=0) - 0.5).max() < 0.01
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.03
